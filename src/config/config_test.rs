//! Whole files: those that ship, HiveMQ's skeleton, and hostile ones.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::mqtt::GroupId;

const SHIPPED: [(&str, &str); 4] = [
    ("default", EMBEDDED),
    ("node1", include_str!("../../config/cluster/node1.xml")),
    ("node2", include_str!("../../config/cluster/node2.xml")),
    ("node3", include_str!("../../config/cluster/node3.xml")),
];

/// spec/hivemq.md 1.10, word by word.
const SKELETON: &str = r#"<hivemq>
  <listeners><tcp-listener><port>1883</port><bind-address>0.0.0.0</bind-address></tcp-listener></listeners>
  <cluster><enabled>true</enabled>
    <transport><tcp><bind-address>${NODE_ADDR}</bind-address><bind-port>7000</bind-port></tcp></transport>
    <discovery><static><node><host>n1</host><port>7000</port></node></static></discovery>
    <replication><replica-count>2</replica-count></replication></cluster>
  <mqtt><queued-messages><max-queue-size>1000</max-queue-size><strategy>discard</strategy></queued-messages></mqtt>
  <mqtt-addons><dead-messages-topic><enabled>true</enabled></dead-messages-topic></mqtt-addons>
  <rest-api><enabled>true</enabled><listeners><http><port>8888</port><bind-address>0.0.0.0</bind-address></http></listeners></rest-api>
  <health-api><enabled>true</enabled><listeners><http><port>8889</port><bind-address>0.0.0.0</bind-address></http></listeners></health-api>
</hivemq>
"#;

fn node_env(name: &str) -> Option<String> {
    match name {
        "NODE_ADDR" => Some("10.0.0.1".to_owned()),
        "HOSTNAME" => Some("n1".to_owned()),
        _ => None,
    }
}

fn read(text: impl AsRef<[u8]>) -> Result<Loaded, ConfigErrors> {
    from_bytes(text.as_ref(), "c.xml", &node_env)
}

#[test]
fn the_embedded_default_starts_one_local_node_without_a_warning() {
    let Loaded { settings, warnings } = embedded_default().unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let addresses: Vec<_> = settings.listeners.iter().map(|l| (l.bind_address.to_string(), l.port)).collect();
    assert_eq!(addresses, [("127.0.0.1".to_owned(), 1883), ("127.0.0.1".to_owned(), 8000)]);
    assert_eq!((settings.http.len(), settings.http[0].port, settings.http[0].bind_address.is_loopback()), (1, 8080, true));
    let addons = &settings.addons;
    assert!(addons.expired && addons.dropped && addons.dead && addons.lifecycle.enabled);
    assert!(!settings.cluster.enabled);
    assert_eq!(settings.persistence, settings::PersistenceMode::File);
}

#[test]
fn the_tls_example_lacks_nothing_but_its_files() {
    let ConfigErrors { errors, warnings } = read(include_str!("../../config/examples/tls.xml")).unwrap_err();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(errors.len(), 2);
    for error in errors {
        assert!(error.to_string().ends_with("tls.crt: cannot be read: No such file or directory (os error 2)"), "{error}");
    }
}

#[test]
fn the_three_cluster_files_fit_together() {
    let nodes: Vec<_> = SHIPPED[1..]
        .iter()
        .map(|(name, text)| {
            let Loaded { settings, warnings } = read(text).unwrap();
            assert!(warnings.is_empty(), "{name}: {warnings:?}");
            settings
        })
        .collect();
    let mut ports = HashSet::new();
    for (node, n) in nodes.iter().zip(1_u16..) {
        assert_eq!(node.cluster.node_name, format!("node{n}"));
        assert_eq!((node.listeners[0].port, node.listeners[1].port), (1882 + n, 7999 + n));
        assert_eq!((node.http[0].port, node.cluster.bind_port), (8079 + n, 7000 + n));
        assert!(node.cluster.static_nodes.contains(&node.cluster.advertised()));
        assert_eq!(
            (&node.cluster.static_nodes, &node.cluster.secret),
            (&nodes[0].cluster.static_nodes, &nodes[0].cluster.secret)
        );
        assert!(node.addons.expired && node.addons.dropped && node.addons.dead && node.addons.lifecycle.enabled);
        let all = node.listeners.iter().map(|l| l.port).chain(node.http.iter().map(|h| h.port)).chain([node.cluster.bind_port]);
        assert!(all.into_iter().all(|port| ports.insert(port)));
    }
}

#[test]
fn the_skeleton_loads_once_it_has_what_we_require() {
    let errors = read(SKELETON).unwrap_err().errors;
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("c.xml:2: <listeners/tcp-listener>: found bind address 0.0.0.0"), "{}", texts[0]);
    assert!(texts[1].starts_with("c.xml:3: <cluster/secret>: there is no cluster secret"), "{}", texts[1]);

    // Doing exactly what the messages say.
    let added = SKELETON
        .replace("<cluster>", "<cluster><secret>0123456789abcdef0123456789abcdef</secret>")
        .replace("</hivemq>", "<security><allow-anonymous><enabled>true</enabled></allow-anonymous></security></hivemq>");
    let Loaded { settings, warnings } = read(&added).unwrap();
    assert_eq!((settings.cluster.node_name.as_str(), settings.cluster.advertised().as_str()), ("n1", "10.0.0.1:7000"));
    assert_eq!((settings.cluster.static_nodes, settings.http.len(), settings.addons.dead), (vec!["n1:7000".to_owned()], 2, true));
    let about: Vec<_> = warnings.iter().map(|w| w.path.as_str()).collect();
    assert_eq!(about, ["cluster/replication/replica-count", "rest-api", "security/allow-anonymous/enabled"]);

    let unset = from_bytes(added.as_bytes(), "c.xml", &|_| None).unwrap_err();
    assert!(unset.to_string().starts_with("c.xml:4: environment variable NODE_ADDR is not set"), "{unset}");
}

#[test]
fn secrets_are_never_printed() {
    let secret = "correct-horse-battery";
    let text = SHIPPED[1].1.replace("local-try-out-only-not-a-secret", secret);
    let loaded = read(&text).unwrap();
    assert_eq!(loaded.settings.cluster.secret, secret);
    let rendered = render(&loaded.settings);
    assert!(rendered.contains("***") && !rendered.contains(secret), "{rendered}");
    assert!(!format!("{loaded:?}").contains(secret));
    for to in ["<secret><x/>", "<secret>short</secret><secret>", "<sekret>", "<mode>", "<secret x='1'>", "text<secret>"] {
        let text = match read(text.replace("<secret>", to).replace("</secret>", &to.replacen('<', "</", 1))) {
            Ok(loaded) => format!("{:?}", loaded.warnings),
            Err(errors) => format!("{errors:?}"),
        };
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn bytes_that_are_no_configuration_give_an_error_with_a_line() {
    let cases: [(&[u8], &str); 6] = [
        (b"<hivemq>\n\xFF</hivemq>", "c.xml:2: not UTF-8 text"),
        (b"\xFF\xFE<\0h\0", "c.xml:1: not UTF-8 text"),
        (b"", "c.xml:1: not well-formed XML at column 1: no root element"),
        (b"\x7fELF\x02\x01\x01\0\0", "c.xml:1: not well-formed XML at column 5: control character U+0002"),
        (
            b"<!DOCTYPE lolz [<!ENTITY a \"aaa\"><!ENTITY b \"&a;&a;\">]><hivemq>&b;</hivemq>",
            "c.xml:1: not well-formed XML at column 1: <!DOCTYPE>",
        ),
        (b"{\"hivemq\": {}}", "c.xml:1: not well-formed XML"),
    ];
    for (raw, message) in cases {
        let error = read(raw).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    let huge = read(vec![b' '; FILE_SIZE_MAX + 1]).unwrap_err();
    assert_eq!(huge.to_string(), "c.xml: larger than 1048576 bytes; this is no configuration");
    assert!(read([b"\xEF\xBB\xBF".as_slice(), EMBEDDED.as_bytes()].concat()).is_ok());
    assert!(read(EMBEDDED.replace('\n', "\r\n")).is_ok());
    let declared = read(EMBEDDED.replace("UTF-8", "ISO-8859-1")).unwrap();
    assert_eq!(declared.warnings[0].to_string(), "c.xml:1: encoding \"ISO-8859-1\" is declared, but the file is read as UTF-8");
}

#[test]
fn many_equal_elements_are_checked_in_reasonable_time() {
    let listeners = "<tcp-listener><port>1</port><name>a</name></tcp-listener>".repeat(6000);
    let errors = read(format!("<hivemq><listeners>{listeners}</listeners></hivemq>")).unwrap_err();
    assert_eq!(errors.errors.len(), 6000);
    assert_eq!(errors.warnings.len(), 5999);
    let errors = read(format!("<hivemq>{}{}</hivemq>", "<mqtt/>".repeat(9000), "<x/>".repeat(9000))).unwrap_err();
    assert_eq!((errors.errors.len(), errors.warnings.len()), (9000, 9000));
}

#[test]
fn files_are_loaded_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.xml");
    let missing = load(&path, |_| None).unwrap_err().to_string();
    assert!(missing.starts_with(&format!("{}: cannot be read: ", path.display())), "{missing}");
    assert!(load(directory.path(), |_| None).is_err());
    std::fs::write(&path, EMBEDDED).unwrap();
    assert_eq!(load(&path, |_| None).unwrap(), embedded_default().unwrap());
    std::fs::write(directory.path().join("declared-shared-subscriptions.xml"), "<x/>").unwrap();
    let error = load(&path, |_| None).unwrap_err().to_string();
    assert!(error.contains("declared-shared-subscriptions.xml:1: found root element <x>"), "{error}");
    let declared = "<declared-shared-subscriptions><subscription><share-name>g</share-name><topic-filter>t</topic-filter>\
                    </subscription></declared-shared-subscriptions>";
    std::fs::write(directory.path().join("declared-shared-subscriptions.xml"), declared).unwrap();
    let settings = load(&path, |_| None).unwrap().settings;
    assert_eq!(settings.declared_shared_subscriptions, [GroupId { share: "g".into(), filter: "t".into() }]);
    assert!(render(&settings).contains("$share/g/t"));
    let off = EMBEDDED
        .replace("<hivemq>", "<hivemq><mqtt><shared-subscriptions><enabled>false</enabled></shared-subscriptions></mqtt>");
    std::fs::write(&path, off).unwrap();
    let error = load(&path, |_| None).unwrap_err().to_string();
    assert!(error.contains("declares shared subscriptions, which"), "{error}");
}

/// A change of a file: where (as a share of its length), how many bytes go, what comes.
fn edit() -> impl Strategy<Value = (f64, usize, Vec<u8>)> {
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..6),
        proptest::sample::select(vec![
            "<",
            ">",
            "</",
            "/>",
            "&",
            "&#0;",
            "&#x1F600;",
            "<![CDATA[",
            "]]>",
            "<!--",
            "-->",
            "<?",
            "?>",
            "<!DOCTYPE",
            "${",
            "}",
            "${NODE_ADDR}",
            "<hivemq>",
            "</hivemq>",
            "<port>",
            "</port>",
            "<triggers/>",
            "<node>",
            "-1",
            "99999999999999999999999",
            "true",
            "\"",
            "'",
            "é",
            "\u{0}",
            "<enabled>true</enabled>",
            "<tls-tcp-listener/>",
            " xmlns:a='b'",
            "::",
            "0.0.0.0",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    (0.0..1.0_f64, 0..40_usize, piece)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn mutated_files_give_settings_or_errors_and_never_a_panic(
        file in 0..5_usize,
        edits in proptest::collection::vec(edit(), 1..5),
        keep in prop_oneof![3 => Just(1.0), 1 => 0.0..1.0_f64],
    ) {
        let mut raw = SHIPPED.get(file).map_or(SKELETON, |(_, text)| text).as_bytes().to_vec();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = |share: f64, len: usize| (share * len as f64) as usize;
        for (share, remove, insert) in edits {
            let start = at(share, raw.len()).min(raw.len());
            let end = (start + remove).min(raw.len());
            raw.splice(start..end, insert);
        }
        raw.truncate(at(keep, raw.len()));
        match read(&raw) {
            Ok(loaded) => {
                let lines = raw.iter().filter(|b| **b == b'\n').count() + 1;
                prop_assert!(loaded.warnings.iter().all(|w| w.line as usize <= lines));
                prop_assert!(!loaded.settings.listeners.is_empty());
                prop_assert!(!render(&loaded.settings).is_empty());
            },
            Err(errors) => {
                prop_assert!(!errors.errors.is_empty());
                prop_assert!(errors.errors.iter().all(|e| e.level == Level::Error && !e.message.is_empty()));
            },
        }
    }
}
