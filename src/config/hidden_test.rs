use super::*;
use crate::config::check::rules::{self, Kind};
use crate::config::{ConfigErrors, from_bytes, rbac};

const MARK: &str = "SECRETpw9";

/// Texts with the mark that XML, or a reader behind it, does not take for a value as it stands.
const SPOILT: &[&str] = &[
    "abc&SECRETpw9;def",
    "abc&SECRETpw9 def",
    "abc&#SECRETpw9;def",
    "abc<SECRETpw9>def",
    "abc<SECRETpw9 ",
    "abc<SECRETpw9",
    "abc<SECRETpw9 x=1>",
    "abc<SECRETpw9 x='&SECRETpw9;'/>",
    "abc<SECRETpw9 x='1' x='2'/>",
    "abc<SECRETpw9 SECRETpw9a='1'/>",
    "<a:SECRETpw9/>",
    "abc<a><SECRETpw9/></a>def",
    "abc<SECRETpw9><SECRETpw9b></SECRETpw9>",
    "abc</SECRETpw9>def",
    "abc</SECRETpw9",
    "<![CDATA[SECRETpw9",
    "<!--SECRETpw9",
    "<!SECRETpw9",
    "<?SECRETpw9",
    "<?xml version='1.0' encoding='SECRETpw9'?>",
    "<?xml SECRETpw9='1'?>",
    "<a xmlnsSECRETpw9='1' xsi:SECRETpw9='1'/>",
    "SECRETpw9\u{1}",
    "abc&#1;SECRETpw9",
    "SECRETpw9\n",
    "SECRETpw9${",
    "SECRETpw9:1:SECRETpw9",
    "x",
    "",
];

/// What a message says, and that it names the line.
fn told(found: Result<Vec<crate::config::Diagnostic>, ConfigErrors>) -> Vec<String> {
    let found = found.unwrap_or_else(|ConfigErrors { errors, warnings }| errors.into_iter().chain(warnings).collect());
    for diagnostic in &found {
        assert!(diagnostic.line > 0 || diagnostic.file != "c.xml", "{diagnostic}");
    }
    found.iter().map(ToString::to_string).collect()
}

fn config(text: &str, value: &str) -> Vec<String> {
    let env = |name: &str| (name == "VAR").then(|| value.to_owned());
    told(from_bytes(text.as_bytes(), "c.xml", &env).map(|loaded| loaded.warnings))
}

fn nest(path: &str, content: &str) -> String {
    path.rsplit('/').fold(content.to_owned(), |inside, name| format!("<{name}>{inside}</{name}>\n"))
}

#[track_caller]
fn assert_hidden(found: &[String], case: &str) {
    assert!(found.iter().all(|text| !text.contains(MARK)), "{case}: {found:#?}");
}

#[test]
fn nothing_of_a_secret_stands_in_a_message_about_a_configuration() {
    let secrets: Vec<_> = rules::all().filter(|rule| matches!(rule.kind, Kind::Secret)).map(|rule| rule.path).collect();
    assert!(secrets.len() >= 8 && secrets.iter().all(|path| is_secret(rules::name(path))), "{secrets:?}");
    for path in secrets.into_iter().chain(["security/authentication/jwt/secret-file"]) {
        for spoilt in SPOILT {
            let file = |content: &str| format!("<hivemq>\n{}</hivemq>", nest(path, content));
            assert_hidden(&config(&file(spoilt), ""), &format!("{path}: {spoilt:?}"));
            assert_hidden(&config(&file("${VAR}"), spoilt), &format!("{path}: ${{VAR}} = {spoilt:?}"));
            assert_hidden(&config(&file("a${VAR}"), spoilt), &format!("{path}: a${{VAR}} = {spoilt:?}"));
        }
        let tags = [
            "<NAME SECRETpw9>a</NAME>",
            "<NAME SECRETpw9='1'>a</NAME>",
            "<NAME xmlnsSECRETpw9='1'>a</NAME>",
            "<NAME x='&SECRETpw9;'>a</NAME>",
            "<NAME SECRETpw9</NAME>",
            "<NAMESECRETpw9</NAME>",
        ];
        for tag in tags {
            let tag = tag.replace("NAME", rules::name(path));
            let found = config(&format!("<hivemq>\n{}</hivemq>", nest(rules::parent(path), &tag)), "");
            assert_hidden(&found, &tag);
            assert!(!found.is_empty());
        }
    }
}

#[test]
fn nothing_that_a_placeholder_put_there_stands_in_a_message() {
    for rule in rules::all() {
        for spoilt in
            SPOILT.iter().copied().chain(["SECRETpw9", "SECRETpw9 x", "/SECRETpw9/+/#/#?", "${{SECRETpw9}}", "[SECRETpw9:]"])
        {
            let found = config(&format!("<hivemq>\n{}</hivemq>", nest(rule.path, "${VAR}")), spoilt);
            assert_hidden(&found, &format!("{}: {spoilt:?}", rule.path));
        }
    }
    for (text, value) in [
        ("<hivemq>\n<${VAR}/></hivemq>", MARK),
        ("<${VAR}/>", MARK),
        ("<hivemq>\n<mqtt ${VAR}='1'/></hivemq>", MARK),
        ("<hivemq>\n<mqtt>${VAR}</mqtt></hivemq>", "<SECRETpw9/>"),
        ("<hivemq>\n<mqtt>${VAR}</hivemq>", "</mqtt><SECRETpw9>"),
        ("<?xml version='1.0' encoding='${VAR}'?>\n<hivemq/>", MARK),
        ("<hivemq>\n<!-- ${VAR} --></hivemq>", "SECRETpw9 -- x"),
    ] {
        let found = config(text, value);
        assert!(!found.is_empty(), "{text}");
        assert_hidden(&found, text);
    }
}

#[test]
fn what_is_hidden_is_told_by_its_place() {
    let secret =
        |content: &str| config(&format!("<hivemq>\n<cluster>\n<secret>{content}</secret></cluster></hivemq>"), "").join("\n");
    let cases = [
        ("a&b;c", "c.xml:3: not well-formed XML at column 10: in <secret>: found an entity; allowed: &lt;"),
        ("a<b>c", "c.xml:3: not well-formed XML at column 14: in <secret>: an end tag of another element"),
        ("a<b ", "c.xml:3: not well-formed XML at column 10: in <secret>: in the attributes of <(not shown)>"),
        ("<a:b/>", "c.xml:3: <cluster/secret>: found element <(not shown)>; allowed: text"),
    ];
    for (content, expected) in cases {
        let found = secret(content);
        assert!(found.contains(expected), "{content}: {found}");
    }
    let found = config("<hivemq>\n<persistence><mode>${VAR}</mode></persistence></hivemq>", "drop");
    let expected = format!("c.xml:2: <persistence/mode>: found {VALUE}; allowed: ");
    assert!(found.iter().any(|text| text.starts_with(&expected)), "{found:?}");
}

#[test]
fn a_variable_that_is_not_set_is_named_unless_it_may_be_a_part_of_a_secret() {
    let cases = [
        ("<secret> ${SECRETpw9}\n</secret>", true),
        ("<path>a${SECRETpw9}b</path>", true),
        ("<secret>x</secret><path>a${SECRETpw9}b</path>", true),
        ("<secret>${VAR}</secret>a${SECRETpw9}b", true),
        ("<secret>a${SECRETpw9}</secret>", false),
        ("<secret>${SECRETpw9}b</secret>", false),
        ("<secret>${VAR}${SECRETpw9}</secret>", false),
        ("<x:password a='1'>a<b${SECRETpw9}</password>", false),
        ("<secret>${SECRETpw9=}</secret>", false),
    ];
    for (text, shown) in cases {
        let found = config(text, "");
        assert_eq!((found.len(), found[0].contains(MARK)), (1, shown), "{text}: {found:?}");
    }
}

#[test]
fn nothing_of_a_password_stands_in_a_message_about_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("conf");
    std::fs::create_dir_all(&conf).unwrap();
    for kind in ["PLAIN", "HASHED"] {
        std::fs::write(
            conf.join("config.xml"),
            format!("<extension-configuration><password-type>{kind}</password-type></extension-configuration>"),
        )
        .unwrap();
        for name in ["password", "scram-sha-256", "scram-sha-512"] {
            for spoilt in SPOILT {
                let text = format!(
                    "<file-rbac>\n<users>\n<user>\n<name>ann</name>\n<{name}>{spoilt}</{name}>\n<roles><id>r</id></roles></user></users>\n\
                     <roles><role><id>r</id><permissions><permission><topic>a</topic></permission></permissions></role></roles></file-rbac>"
                );
                std::fs::write(conf.join("credentials.xml"), text).unwrap();
                let settings = rbac::settings(folder.path(), false, &mut Vec::new());
                let found = rbac::load(&settings).map(|loaded| loaded.warnings);
                let found = told(found.map_err(|errors| ConfigErrors { errors, warnings: Vec::new() }));
                assert_hidden(&found, &format!("{kind} {name}: {spoilt:?}"));
            }
        }
    }
}

#[test]
fn nothing_of_a_key_stands_in_a_message_about_the_files_of_jwt_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let contents = SPOILT.iter().map(ToString::to_string).chain([
        "-----BEGIN PRIVATE KEY-----\nSECRETpw9\n-----END PRIVATE KEY-----\n".to_owned(),
        "-----BEGIN PRIVATE KEY-----\n*SECRETpw9\n".to_owned(),
        "-----BEGIN SECRETpw9\n".to_owned(),
        "-----BEGIN PUBLIC KEY-----\nSECRETpw9*\n-----END SECRETpw9-----\n".to_owned(),
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"SECRETpw9*\"}]}".to_owned(),
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"SECRETpw9\"".to_owned(),
        "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"SECRETpw9\",\"e\":\"AQAB\",\"d\":\"SECRETpw9\"}]}".to_owned(),
        "{\"keys\":[\"SECRETpw9\"]}".to_owned(),
    ]);
    for content in contents {
        std::fs::write(&file, &content).unwrap();
        for path in ["secret-file", "public-key-file", "jwks-file"].map(|name| format!("security/authentication/jwt/{name}")) {
            // By its path, and by mistake as such.
            for value in [file.to_str().unwrap(), &content] {
                let found = config(&format!("<hivemq>\n{}</hivemq>", nest(&path, "${VAR}")), value);
                assert_hidden(&found, &format!("{path}: {value:?}"));
            }
        }
        for name in ["path", "private-key-path"] {
            let stores = format!("<keystore><{name}>${{VAR}}</{name}></keystore>");
            let text = format!(
                "<hivemq>\n<listeners><tls-tcp-listener><port>1</port><tls>{stores}</tls></tls-tcp-listener></listeners></hivemq>"
            );
            for value in [file.to_str().unwrap(), &content] {
                assert_hidden(&config(&text, value), &format!("{name}: {value:?}"));
            }
        }
    }
}
