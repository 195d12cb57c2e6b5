//! Values of options.

use std::str::FromStr;
use std::time::Duration;

use crate::mqtt::{ProtocolVersion, QoS};

/// Longest time an option takes: a month.
const TIME_MAX_S: f64 = 31.0 * 86_400.0;

/// Events a second, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerSecond(u64);

impl PerSecond {
    pub fn get(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl FromStr for PerSecond {
    type Err = String;

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    fn from_str(text: &str) -> Result<Self, String> {
        let rate: f64 = text.parse().map_err(|_| "write a number a second, such as 5000 or 0.5".to_owned())?;
        if !(0.001..=1e9).contains(&rate) {
            return Err("a rate is more than 0 and at most 1000000000 a second".to_owned());
        }
        Ok(Self((rate * 1000.0).round() as u64))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub u64);

impl FromStr for Milliseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ms @ 10..=3_600_000) => Ok(Self(ms)),
            _ => Err("write 10 to 3600000 milliseconds".to_owned()),
        }
    }
}

pub fn version(text: &str) -> Result<ProtocolVersion, String> {
    match text {
        "5" | "5.0" => Ok(ProtocolVersion::V5),
        "3" | "3.1.1" => Ok(ProtocolVersion::V3_1_1),
        _ => Err("write 5 or 3.1.1".to_owned()),
    }
}

pub fn qos(text: &str) -> Result<QoS, String> {
    text.parse().ok().and_then(QoS::from_bits).ok_or_else(|| "write 0, 1 or 2".to_owned())
}

/// Seconds, or a number with ms, s, m or h.
pub fn duration(text: &str) -> Result<Duration, String> {
    const HINT: &str = "write seconds, or a number with ms, s, m or h";
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(HINT.to_owned()),
    };
    let seconds = digits.parse::<f64>().map_err(|_| HINT.to_owned())? * unit;
    if !(0.0..=TIME_MAX_S).contains(&seconds) {
        return Err("a time is between 0 and 744h".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
