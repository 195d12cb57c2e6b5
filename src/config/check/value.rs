//! Reads one value by its rule.

use super::rules::{Kind, MULTIPLIER_MAX, MULTIPLIER_MIN, Number};

/// What came of a value.
pub(super) enum Reading<T> {
    Fits(T),
    /// Out of range, and what takes its place.
    Replaced(T),
    Wrong,
}

impl<T> Reading<T> {
    pub(super) fn ok(self) -> Option<T> {
        match self {
            Self::Fits(value) | Self::Replaced(value) => Some(value),
            Self::Wrong => None,
        }
    }
}

/// Reads an XML boolean.
pub(super) fn flag(text: &str) -> Reading<bool> {
    match text {
        "true" | "1" => Reading::Fits(true),
        "false" | "0" => Reading::Fits(false),
        _ => Reading::Wrong,
    }
}

/// Reads a whole number; one with too many digits counts as the largest or smallest there is.
pub(super) fn number(rule: &Number, text: &str) -> Reading<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Reading::Wrong;
    }
    let value = text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX });
    match rule.replace {
        _ if (rule.min..=rule.max).contains(&value) => Reading::Fits(value),
        Some(replace) => Reading::Replaced(replace(value)),
        None => Reading::Wrong,
    }
}

/// Reads one of the words, in any case.
pub(super) fn choice(words: &[&'static str], text: &str) -> Reading<&'static str> {
    words.iter().find(|word| word.eq_ignore_ascii_case(text)).map_or(Reading::Wrong, |word| Reading::Fits(word))
}

/// Says whether it is a number above 0.
pub(super) fn is_rate(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// Reads a multiplier as thousandths; what is finer than that is rounded.
pub(super) fn multiplier_milli(text: &str) -> Option<u32> {
    let value = text.parse::<f64>().ok().filter(|value| (MULTIPLIER_MIN..=MULTIPLIER_MAX).contains(value))?;
    format!("{:.0}", value * 1000.0).parse().ok()
}

/// Says in a message what an element may hold.
pub(in crate::config) fn allowed(kind: &Kind) -> String {
    match kind {
        Kind::Section | Kind::Any | Kind::Mark => "elements".to_owned(),
        Kind::Flag { .. } => "true or false".to_owned(),
        Kind::Number(Number { min, max: i64::MAX, .. }) => format!("a whole number of at least {min}"),
        Kind::Number(Number { min, max, .. }) => format!("a whole number from {min} to {max}"),
        Kind::Rate => "a number above 0".to_owned(),
        Kind::Multiplier => format!("a number from {MULTIPLIER_MIN} to {MULTIPLIER_MAX}"),
        Kind::Choice(words) => words.join(" or "),
        Kind::Text | Kind::Secret => "text that is not empty".to_owned(),
    }
}
