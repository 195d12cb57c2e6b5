//! Conversions between times and numbers, in one place.

use std::time::Duration;

/// Nanoseconds; what does not fit is the largest number.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The nearest whole number, 0 for what is negative or none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and NaN is 0")]
pub(super) fn whole(value: f64) -> u64 {
    value.round() as u64
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// A number for people: three digits that count, thousands set off.
pub fn show(value: f64) -> String {
    let magnitude = value.abs();
    let sign = if value < 0.0 { "-" } else { "" };
    let decimals = match magnitude {
        m if m.fract() == 0.0 || m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 3,
    };
    if decimals > 0 {
        return format!("{sign}{magnitude:.decimals$}");
    }
    let digits = format!("{magnitude:.0}");
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or_default()).collect();
    format!("{sign}{}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_the_digits_that_count() {
        let table = [
            (0.0, "0"),
            (0.0612, "0.061"),
            (1.5, "1.50"),
            (12.34, "12.3"),
            (999.6, "1,000"),
            (26_000.0, "26,000"),
            (1_234_567.8, "1,234,568"),
            (-5.0, "-5"),
        ];
        for (value, shown) in table {
            assert_eq!(show(value), shown);
        }
    }
}
