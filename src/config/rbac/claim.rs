//! Permissions as a claim of a token has them: an array of objects with the fields of a `<permission>` and the same words and defaults
//! (spec/hivemq.md 7.2). A field nobody knows is an error here, since a default in its place may allow more than was meant.

use serde_json::{Map, Value};

use super::credentials::{ACTIVITY, ANY_GROUP, Permission, QOS, RETAIN, SHARE};
use super::template::Template;
use crate::mqtt::topic_filter;

/// Permissions of one token.
pub const PERMISSIONS_MAX: usize = 100;
/// Bytes of a topic filter, with its placeholders.
const TOPIC_LEN_MAX: usize = 1024;

/// Why a claim holds no permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimError {
    Shape,
    TooMany,
    Field,
    Topic,
    Word,
}

impl ClaimError {
    /// In words that go to the client: they repeat nothing of the token.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Shape => "the permissions in the token are no array of objects",
            Self::TooMany => "the token has too many permissions",
            Self::Field => "a permission in the token has a field that is not known",
            Self::Topic => "a permission in the token has no valid topic filter",
            Self::Word => "a permission in the token has a word that is not known",
        }
    }
}

/// Reads the claim.
///
/// # Errors
/// The first thing that is wrong: then nothing of the claim counts.
pub fn permissions(claim: &Value) -> Result<Vec<Permission>, ClaimError> {
    let list = claim.as_array().ok_or(ClaimError::Shape)?;
    if list.len() > PERMISSIONS_MAX {
        return Err(ClaimError::TooMany);
    }
    list.iter().map(|entry| permission(entry.as_object().ok_or(ClaimError::Shape)?)).collect()
}

const FIELDS: &[&str] = &["topic", "activity", "qos", "retain", "shared-subscription", "shared-group"];

fn permission(entry: &Map<String, Value>) -> Result<Permission, ClaimError> {
    if entry.keys().any(|field| !FIELDS.contains(&field.as_str())) {
        return Err(ClaimError::Field);
    }
    let text = entry.get("topic").and_then(Value::as_str).filter(|topic| topic.len() <= TOPIC_LEN_MAX);
    let topic = Template::parse(text.ok_or(ClaimError::Topic)?, &mut Vec::new());
    if !topic_filter::is_valid(&topic.sample()) {
        return Err(ClaimError::Topic);
    }
    let group = match entry.get("shared-group") {
        None => ANY_GROUP,
        Some(group) => group.as_str().filter(|group| group.len() <= TOPIC_LEN_MAX).ok_or(ClaimError::Word)?,
    };
    Ok(Permission {
        topic,
        activity: word(entry, "activity", ACTIVITY)?,
        qos: word(entry, "qos", QOS)?,
        retain: word(entry, "retain", RETAIN)?,
        share: word(entry, "shared-subscription", SHARE)?,
        group: (group != ANY_GROUP && !group.is_empty()).then(|| group.into()),
    })
}

/// One of the words, in any case; the first where there is none.
fn word<T: Copy>(entry: &Map<String, Value>, name: &str, words: &[(&str, T)]) -> Result<T, ClaimError> {
    let found = match entry.get(name) {
        None => words.first(),
        Some(value) => value.as_str().and_then(|text| words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text))),
    };
    found.map(|(_, value)| *value).ok_or(ClaimError::Word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Activity, Retain, Share};
    use super::*;

    #[test]
    fn a_permission_has_the_words_and_defaults_of_the_files() {
        let all = permissions(&json!([
            {"topic": "a/+"},
            {"topic": "dev/${{clientid}}/#", "activity": "publish", "qos": "ZERO_ONE", "retain": "NOT_RETAINED",
             "shared-subscription": "SHARED", "shared-group": "g"},
            {"topic": "$expired/#", "shared-group": "#"}
        ]))
        .unwrap();
        let default = Permission {
            topic: Template::Fixed("a/+".into()),
            activity: Activity::All,
            qos: [true; 3],
            retain: Retain::All,
            share: Share::All,
            group: None,
        };
        assert_eq!(all[0], default);
        assert!(matches!(all[1].topic, Template::Pieces(_)));
        assert_eq!((all[1].activity, all[1].qos, all[1].retain), (Activity::Publish, [true, true, false], Retain::NotRetained));
        assert_eq!((all[1].share, all[1].group.as_deref()), (Share::Shared, Some("g")));
        assert_eq!(all[2], Permission { topic: Template::Fixed("$expired/#".into()), ..default });
        assert_eq!(permissions(&json!([])), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_makes_the_whole_claim_so() {
        use ClaimError as E;
        let many: Vec<_> = (0..=PERMISSIONS_MAX).map(|_| json!({"topic": "a"})).collect();
        let table = [
            (json!("a/#"), E::Shape),
            (json!({"topic": "a"}), E::Shape),
            (json!(["a"]), E::Shape),
            (json!(null), E::Shape),
            (json!(many), E::TooMany),
            (json!([{"topic": "a"}, {"topic": "a", "activty": "PUBLISH"}]), E::Field),
            (json!([{}]), E::Topic),
            (json!([{"topic": ""}]), E::Topic),
            (json!([{"topic": 1}]), E::Topic),
            (json!([{"topic": "a/#/b"}]), E::Topic),
            (json!([{"topic": "a+"}]), E::Topic),
            (json!([{"topic": "a\u{0}"}]), E::Topic),
            (json!([{"topic": "a".repeat(1025)}]), E::Topic),
            (json!([{"topic": "a", "activity": "READ"}]), E::Word),
            (json!([{"topic": "a", "activity": null}]), E::Word),
            (json!([{"topic": "a", "qos": 1}]), E::Word),
            (json!([{"topic": "a", "retain": true}]), E::Word),
            (json!([{"topic": "a", "shared-subscription": "YES"}]), E::Word),
            (json!([{"topic": "a", "shared-group": 1}]), E::Word),
        ];
        for (claim, error) in table {
            assert_eq!(permissions(&claim), Err(error), "{claim}");
        }
    }
}
