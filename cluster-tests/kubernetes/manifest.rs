//! Objects as they would be applied, and ways to find what is in them.

use serde_json::{Map, Value};

#[derive(Debug, Clone)]
pub struct Manifest(pub Vec<Value>);

impl Manifest {
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    pub fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.of_kind(kind).find(|object| object["metadata"]["name"] == name)
    }

    #[track_caller]
    pub fn get(&self, kind: &str, name: &str) -> &Value {
        self.find(kind, name).unwrap_or_else(|| panic!("no {kind} {name} in {:?}", self.names()))
    }

    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|object| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))).collect()
    }

    pub fn stateful_set(&self) -> &Value {
        let mut all = self.of_kind("StatefulSet");
        let first = all.next().expect("a StatefulSet");
        assert!(all.next().is_none(), "one StatefulSet");
        first
    }

    pub fn pod(&self) -> &Value {
        &self.stateful_set()["spec"]["template"]
    }

    pub fn container(&self) -> &Value {
        let containers = list(&self.pod()["spec"]["containers"]);
        assert_eq!(containers.len(), 1, "one container");
        &containers[0]
    }

    /// The text of `config.xml`.
    pub fn config(&self) -> &str {
        let mut texts = self.of_kind("ConfigMap").filter_map(|map| map["data"]["config.xml"].as_str());
        let text = texts.next().expect("a config.xml");
        assert!(texts.next().is_none(), "one config.xml");
        text
    }

    /// The number of a port of the container.
    pub fn port(&self, name: &str) -> Option<u16> {
        let port = list(&self.container()["ports"]).iter().find(|port| port["name"] == name)?;
        u16::try_from(port["containerPort"].as_u64()?).ok()
    }
}

/// A list; none where there is nothing.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Whether labels have all that a selector asks for, which is to be something.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted: &Map<String, Value> = selector.as_object().unwrap_or_else(|| panic!("no selector: {selector}"));
    !wanted.is_empty() && wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The text of an element of `config.xml`, by the names on the way to it.
#[track_caller]
pub fn element<'a>(config: &'a str, path: &str) -> &'a str {
    path.split('/').fold(config, |inside, name| {
        let (_, after) = inside.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("no <{name}> of {path}"));
        let (content, _) = after.split_once(&format!("</{name}>")).unwrap_or_else(|| panic!("<{name}> does not end"));
        content.trim()
    })
}
