//! Topic filters of permissions with the names of the client in them: `${{clientid}}` and `${{username}}`, `§` before a `$` takes its
//! meaning away (spec/hivemq.md 7.2).

use std::borrow::Cow;

use bytestring::ByteString;

const OPEN: &str = "${{";
const CLOSE: &str = "}}";
const ESCAPE: char = '§';
/// Stands for a name where the filter is checked.
const SAMPLE: &str = "x";

/// What the placeholders of a template stand for.
#[derive(Debug, Clone, Copy)]
pub struct Substitutes<'a> {
    pub client_id: &'a str,
    /// `None` where nobody vouches for a name.
    pub user_name: Option<&'a str>,
}

/// A topic filter, or what becomes one for each client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    Fixed(ByteString),
    Pieces(Vec<Piece>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(ByteString),
    ClientId,
    UserName,
}

impl Template {
    /// Reads a template. A placeholder nobody knows stays as it is; its name is pushed to `unknown`.
    pub(in crate::config) fn parse(text: &str, unknown: &mut Vec<String>) -> Self {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let after = rest.get(c.len_utf8()..).unwrap_or_default();
            if c == ESCAPE && after.starts_with(['$', ESCAPE]) {
                let escaped = after.chars().next().map_or(0, char::len_utf8);
                literal.push_str(after.get(..escaped).unwrap_or_default());
                rest = after.get(escaped..).unwrap_or_default();
                continue;
            }
            if let Some((name, behind)) = rest.strip_prefix(OPEN).and_then(|inside| inside.split_once(CLOSE)) {
                let piece = match name.to_ascii_lowercase().as_str() {
                    "clientid" => Some(Piece::ClientId),
                    "username" => Some(Piece::UserName),
                    _ => None,
                };
                if let Some(piece) = piece {
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                    }
                    pieces.push(piece);
                    rest = behind;
                    continue;
                }
                unknown.push(name.to_owned());
            }
            literal.push(c);
            rest = after;
        }
        if pieces.is_empty() {
            return Self::Fixed(literal.into());
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        Self::Pieces(pieces)
    }

    /// The filter for one client; `None` where the permission is not for it: a name is not known, or would reach further than a part
    /// of a level. The client chooses its id itself, so an id with `/` must not choose the level, and neither name may open a `$`
    /// namespace or be a wildcard.
    pub fn filter(&self, names: Substitutes<'_>) -> Option<Cow<'_, str>> {
        let pieces = match self {
            Self::Fixed(filter) => return Some(Cow::Borrowed(filter)),
            Self::Pieces(pieces) => pieces,
        };
        let mut filter = String::new();
        for piece in pieces {
            let (name, forbidden): (&str, &[char]) = match piece {
                Piece::Text(text) => (text, &[]),
                Piece::ClientId => (names.client_id, &['+', '#', '/', '\0']),
                Piece::UserName => (names.user_name?, &['+', '#', '\0']),
            };
            let opens_namespace = filter.is_empty() && name.starts_with('$') && !matches!(piece, Piece::Text(_));
            if name.is_empty() || name.contains(forbidden) || opens_namespace {
                return None;
            }
            filter.push_str(name);
        }
        Some(Cow::Owned(filter))
    }

    /// The text with the names in it, whatever they are, to be compared with; `None` where one is not known.
    pub fn text(&self, names: Substitutes<'_>) -> Option<Cow<'_, str>> {
        let pieces = match self {
            Self::Fixed(text) => return Some(Cow::Borrowed(text)),
            Self::Pieces(pieces) => pieces,
        };
        let mut text = String::new();
        for piece in pieces {
            text.push_str(match piece {
                Piece::Text(text) => text,
                Piece::ClientId => names.client_id,
                Piece::UserName => names.user_name?,
            });
        }
        Some(Cow::Owned(text))
    }

    /// Whether it is the user name and nothing else.
    pub fn is_user_name(&self) -> bool {
        matches!(self, Self::Pieces(pieces) if matches!(pieces.as_slice(), [Piece::UserName]))
    }

    /// The filter with harmless names in it, to be checked.
    pub(super) fn sample(&self) -> Cow<'_, str> {
        self.filter(Substitutes { client_id: SAMPLE, user_name: Some(SAMPLE) }).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_take_the_names_in_any_case_and_an_escape_takes_their_meaning() {
        let table = [
            ("a/b", Some("a/b")),
            ("dev/${{clientid}}/#", Some("dev/c1/#")),
            ("${{CLIENTID}}-${{UserName}}/x", Some("c1-u1/x")),
            ("§${{clientid}}/x", Some("${{clientid}}/x")),
            ("§§${{clientid}}", Some("§c1")),
            ("a§b/§", Some("a§b/§")),
            ("${{other}}/${{clientid", Some("${{other}}/${{clientid")),
            ("${clientid}", Some("${clientid}")),
            ("", Some("")),
        ];
        for (text, expected) in table {
            let template = Template::parse(text, &mut Vec::new());
            let names = Substitutes { client_id: "c1", user_name: Some("u1") };
            assert_eq!(template.filter(names).as_deref(), expected, "{text}");
        }
        let mut unknown = Vec::new();
        Template::parse("${{other}}/${{clientid}}", &mut unknown);
        assert_eq!(unknown, ["other"]);
    }

    proptest::proptest! {
        #[test]
        fn a_text_without_placeholders_stays_as_it_is_and_none_fails(text in "[a-z/+#$§{}]{0,20}", id in "\\PC{0,5}") {
            let template = Template::parse(&text, &mut Vec::new());
            let filter = template.filter(Substitutes { client_id: &id, user_name: None });
            if !text.contains('§') && !text.contains("${{") {
                proptest::prop_assert_eq!(filter.as_deref(), Some(text.as_str()));
            }
        }
    }

    #[test]
    fn a_name_cannot_reach_further_than_its_place() {
        let table = [
            ("dev/${{clientid}}/#", "a/b", "u", None),
            ("dev/${{clientid}}/#", "+", "u", None),
            ("dev/${{clientid}}/#", "#", "u", None),
            ("dev/${{clientid}}", "", "u", None),
            ("${{clientid}}/#", "$expired", "u", None),
            ("${{username}}/#", "c", "$expired", None),
            ("x${{clientid}}/#", "$expired", "u", Some("x$expired/#")),
            ("${{clientid}}${{username}}", "c", "$u", Some("c$u")),
            ("dev/${{username}}/#", "c", "a/b", Some("dev/a/b/#")),
            ("dev/${{username}}/#", "c", "+", None),
        ];
        for (text, client_id, user_name, expected) in table {
            let template = Template::parse(text, &mut Vec::new());
            let names = Substitutes { client_id, user_name: Some(user_name) };
            assert_eq!(template.filter(names).as_deref(), expected, "{text} {client_id} {user_name}");
        }
        let nobody = Substitutes { client_id: "c", user_name: None };
        assert_eq!(Template::parse("${{username}}", &mut Vec::new()).filter(nobody), None);
    }

    #[test]
    fn to_be_compared_with_a_name_may_be_anything() {
        let table = [("${{clientid}}", "a/+"), ("u:${{username}}", "u:$x#"), ("fixed", "fixed"), ("", "")];
        for (text, expected) in table {
            let template = Template::parse(text, &mut Vec::new());
            let names = Substitutes { client_id: "a/+", user_name: Some("$x#") };
            assert_eq!(template.text(names).as_deref(), Some(expected), "{text}");
        }
        let nobody = Substitutes { client_id: "c", user_name: None };
        let user = Template::parse("${{username}}", &mut Vec::new());
        assert!(user.is_user_name() && user.text(nobody).is_none());
    }
}
