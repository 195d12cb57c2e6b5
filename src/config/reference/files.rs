//! Chapters of the files beside `config.xml`.

use std::fmt::Write;

use crate::config::file_element::FileElement;
use crate::config::{declared, rbac};

/// A file in XML with a table of its own.
pub(super) struct File {
    pub(super) title: &'static str,
    pub(super) root: &'static str,
    /// Markdown.
    pub(super) intro: &'static str,
    pub(super) elements: &'static [FileElement],
    pub(super) example: &'static str,
}

pub(super) const FILES: &[File] = &[
    File {
        title: "Declared shared subscriptions",
        root: declared::ROOT,
        intro: "`declared-shared-subscriptions.xml` beside `config.xml`, as in HiveMQ: shared subscriptions that have a queue before anybody subscribes, and without members. Without the \
                file there are none. A mistake in it ends the start, an unknown element too; so does the file where `mqtt/shared-subscriptions/enabled` is off. Placeholders are not replaced in it.",
        elements: declared::ELEMENTS,
        example: "\
<declared-shared-subscriptions>
  <subscription>
    <share-name>workers</share-name>
    <topic-filter>jobs/+/new</topic-filter>
  </subscription>
</declared-shared-subscriptions>",
    },
    File {
        title: "File RBAC: config.xml",
        root: rbac::ROOTS[0],
        intro: "`conf/config.xml` in the extension's folder (or `extension-config.xml` right in it, which wins). It may be absent. A mistake in it costs a warning and the default, \
                as in HiveMQ. Placeholders are not replaced in it.",
        elements: rbac::EXTENSION,
        example: "\
<extension-configuration>
  <credentials-reload-interval>30</credentials-reload-interval>
  <password-type>HASHED</password-type>
  <listener-names>
    <listener-name>tcp-listener-1883</listener-name>
  </listener-names>
</extension-configuration>",
    },
    File {
        title: "File RBAC: credentials.xml",
        root: rbac::ROOTS[1],
        intro: "`conf/credentials.xml` in the extension's folder (or `credentials.xml` right in it, which wins): users, and roles with what they allow. Any mistake makes the whole file \
                invalid: a node that starts with one refuses every client until there is a better file, one that runs keeps the file from before. Unknown elements are passed over \
                with a warning. Placeholders with one brace are not replaced in it.",
        elements: rbac::CREDENTIALS,
        example: "\
<file-rbac>
  <users>
    <user>
      <name>ann</name>
      <password>bnNKZ1lhR0tMbA==:10000:qgD84m5cHTeCLdnNF5R06ACiJGKnYSxzBtpBAHAZ0+6qsbm3i8JxrS1u2jXW/m2mmB4rRqqkLbMZ0oyh/tYaJA==</password>
      <roles><id>devices</id></roles>
    </user>
  </users>
  <roles>
    <role>
      <id>devices</id>
      <permissions>
        <permission>
          <topic>data/${{clientid}}/#</topic>
          <activity>PUBLISH</activity>
        </permission>
        <permission>
          <topic>jobs/#</topic>
          <activity>SUBSCRIBE</activity>
          <qos>ZERO_ONE</qos>
          <shared-subscription>SHARED</shared-subscription>
          <shared-group>workers</shared-group>
        </permission>
      </permissions>
    </role>
  </roles>
</file-rbac>",
    },
];

pub(super) fn write(out: &mut String, file: &File) {
    // Writing to a string cannot fail.
    _ = writeln!(out, "\n## {}\n\n{}\n\nPaths begin in `<{}>`.\n", file.title, file.intro, file.root);
    _ = writeln!(out, "| Element | Value | Default | Whose | What it does |\n| --- | --- | --- | --- | --- |");
    for element in file.elements {
        let mut value = element.value.text();
        if value.is_empty() {
            "elements".clone_into(&mut value);
        }
        if element.many {
            value.push_str("; *several times*");
        }
        let whose = if element.own { "own" } else { "HiveMQ" };
        _ = writeln!(out, "| `{}` | {value} | {} | {whose} | {} |", element.path, element.without.text(), element.meaning);
    }
    _ = writeln!(out, "\n```xml\n{}\n```", file.example);
}
