/// Whether `text` holds characters that MQTT 5 section 1.5.4 says should not be sent: control characters (U+0001 to U+001F, U+007F to
/// U+009F) and Unicode non-characters. The decoder lets them pass; the session refuses them where `utf8-validation` says so.
pub fn has_discouraged(text: &str) -> bool {
    // Printable ASCII is nearly all there is; only other text is looked at character by character.
    text.bytes().any(|byte| !matches!(byte, 0x20..=0x7E)) && text.chars().any(is_discouraged)
}

fn is_discouraged(c: char) -> bool {
    c.is_control() || matches!(u32::from(c), 0xFDD0..=0xFDEF) || u32::from(c) & 0xFFFE == 0xFFFE
}

#[cfg(test)]
mod tests {
    use super::has_discouraged;

    #[test]
    fn control_and_non_characters_are_discouraged() {
        for bad in [
            "a\u{1}",
            "\n",
            "\u{1f}",
            "\u{7f}",
            "\u{80}x",
            "\u{9f}",
            "\u{fdd0}",
            "\u{fdef}",
            "\u{fffe}",
            "\u{ffff}",
            "\u{1ffff}",
            "\u{10fffe}",
        ] {
            assert!(has_discouraged(bad), "{bad:?}");
        }
        for good in ["", "a/b c~", "ä", "\u{a0}", "\u{feff}x", "\u{fdcf}", "\u{fdf0}", "\u{fffd}", "\u{1f600}", "\u{10fffd}"] {
            assert!(!has_discouraged(good), "{good:?}");
        }
    }
}
