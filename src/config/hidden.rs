//! What no message repeats: what stands in an element that holds a secret, and what a placeholder put into the text.

/// Elements, of any file, that hold a secret; into `secret-file` the secret itself may get by mistake.
const SECRETS: &[&str] = &["password", "private-key-password", "secret", "secret-file", "scram-sha-256", "scram-sha-512"];

/// Stands for a value.
pub(super) const VALUE: &str = "a value that is not shown, since it may be a secret";
/// Stands for the name of an element or attribute.
pub(super) const NAME: &str = "(not shown)";

/// Whether nothing inside the element is repeated.
pub(super) fn is_secret(element: &str) -> bool {
    SECRETS.contains(&element)
}

/// Whether a name is one: a tag that lost its end swallows the text behind it.
pub(super) fn is_name(name: &str) -> bool {
    !name.contains(['<', '>', '/', '&', '"', '\'', '='])
}

#[cfg(test)]
#[path = "hidden_test.rs"]
mod tests;
