//! Elliptic-curve keys as Java writes them: without the public key, which RFC 5915 lets them leave out and ring insists on.

/// 1.2.840.10045.2.1, an elliptic-curve key.
const EC_PUBLIC_KEY: &[u8] = &[OBJECT_IDENTIFIER, 7, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const PUBLIC_KEY: u8 = 0xA1;

/// Puts a certificate's public key into a PKCS #8 key; whether they belong together is for the reader of the key to find. `None` where
/// it is no such key, or has its public key already.
pub(super) fn complete(pkcs8: &[u8], public_key: &[u8]) -> Option<Vec<u8>> {
    let (outer, _) = open(SEQUENCE, pkcs8)?;
    let (_, rest) = open(INTEGER, outer)?;
    let (algorithm, rest) = open(SEQUENCE, rest)?;
    let (key, _) = open(OCTET_STRING, rest)?;
    let (key, _) = open(SEQUENCE, key)?;
    let (_, rest) = open(INTEGER, key)?;
    let (private, rest) = open(OCTET_STRING, rest)?;
    if !algorithm.starts_with(EC_PUBLIC_KEY) || rest.contains(&PUBLIC_KEY) {
        return None;
    }
    let public_key = wrap(PUBLIC_KEY, &wrap(BIT_STRING, &[&[0], public_key].concat()));
    let key = wrap(SEQUENCE, &[wrap(INTEGER, &[1]), wrap(OCTET_STRING, private), public_key].concat());
    Some(wrap(SEQUENCE, &[wrap(INTEGER, &[0]), wrap(SEQUENCE, algorithm), wrap(OCTET_STRING, &key)].concat()))
}

/// Content of the first element, which must have that tag, and what follows it.
fn open(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = match bytes {
        [t, len @ ..=0x7F, rest @ ..] if *t == tag => (usize::from(*len), rest),
        [t, 0x81, len, rest @ ..] if *t == tag => (usize::from(*len), rest),
        [t, 0x82, high, low, rest @ ..] if *t == tag => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(len)
}

fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    let head: &[u8] = match (high, low) {
        (0, ..=0x7F) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [head, content].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_no_key_is_left_alone(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(complete(&bytes, b"key"), None);
        }

        #[test]
        fn what_is_wrapped_can_be_opened(content in proptest::collection::vec(any::<u8>(), 0..400)) {
            let wrapped = wrap(SEQUENCE, &content);
            prop_assert_eq!(open(SEQUENCE, &wrapped), Some((&content[..], &[][..])));
            prop_assert_eq!(open(SEQUENCE, &wrapped[..wrapped.len() - 1]), None);
        }
    }
}
