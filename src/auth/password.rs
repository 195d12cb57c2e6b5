//! Passwords and what is kept of them: PBKDF2-HMAC-SHA512 as HiveMQ's File RBAC has it (spec/hivemq.md 7.3), and SCRAM's keys.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA512_OUTPUT_LEN, digest};
use ring::{hmac, pbkdf2};

use super::scram::Mechanism;
use crate::config::rbac::{Hash, Password, ScramVerifier};

/// A longer password is refused before anything is computed from it.
pub const PASSWORD_LEN_MAX: usize = 4096;

/// Whether the password fits; takes as long as its iterations take, and the same time whether it fits or not.
pub fn verify(kept: &Password, password: &[u8]) -> bool {
    if password.len() > PASSWORD_LEN_MAX {
        return false;
    }
    match kept {
        // Both sides are hashed, so that the comparison tells neither content nor length.
        Password::Plain(expected) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
            hmac::verify(&key, password, hmac::sign(&key, expected).as_ref()).is_ok()
        }
        // A part of a hash would fit too, and be easier to guess.
        Password::Hashed(Hash { salt, iterations, hash }) => NonZeroU32::new(*iterations)
            .filter(|_| hash.len() == SHA512_OUTPUT_LEN)
            .is_some_and(|n| pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA512, n, salt, password, hash).is_ok()),
        Password::Never => false,
    }
}

/// Takes the time of a password that does not fit.
pub fn pretend(iterations: u32, password: &[u8]) {
    let hash = Hash { salt: [0; 32].into(), iterations, hash: [0; SHA512_OUTPUT_LEN].into() };
    std::hint::black_box(verify(&Password::Hashed(hash), password));
}

/// `base64(salt):iterations:base64(hash)`.
pub fn hash(password: &[u8], salt: &str, iterations: NonZeroU32) -> String {
    let mut hash = [0; SHA512_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA512, iterations, salt.as_bytes(), password, &mut hash);
    format!("{}:{iterations}:{}", STANDARD.encode(salt), STANDARD.encode(hash))
}

/// What a server keeps of a SCRAM password (RFC 5802 section 3).
pub fn scram_verifier(mechanism: Mechanism, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> ScramVerifier {
    let mut salted = vec![0; mechanism.key_len()];
    pbkdf2::derive(mechanism.pbkdf2(), iterations, salt, password, &mut salted);
    let key = hmac::Key::new(mechanism.hmac(), &salted);
    let client_key = hmac::sign(&key, b"Client Key");
    ScramVerifier {
        iterations: iterations.get(),
        salt: salt.into(),
        stored_key: digest(mechanism.digest(), client_key.as_ref()).as_ref().into(),
        server_key: hmac::sign(&key, b"Server Key").as_ref().into(),
    }
}

/// `iterations:base64(salt):base64(StoredKey):base64(ServerKey)`.
pub fn scram_text(verifier: &ScramVerifier) -> String {
    let [salt, stored, server] = [&verifier.salt, &verifier.stored_key, &verifier.server_key].map(|part| STANDARD.encode(part));
    format!("{}:{salt}:{stored}:{server}", verifier.iterations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: NonZeroU32 = NonZeroU32::new(100).unwrap();

    #[test]
    fn a_hash_is_that_of_other_programs_and_fits_its_password_only() {
        // Python: hashlib.pbkdf2_hmac('sha512', b'password', b'salt', 1)
        let known = "c2FsdA==:1:hn9wzxreAs/zdSWZo6U9xK80x6ZpgVrl1RNVThyM8lLALUcKKFoFAbrZmb/pQ8CPBQI119aLHaVeY/c7YKV/zg==";
        assert_eq!(hash(b"password", "salt", NonZeroU32::MIN), known);
        let kept = Hash { salt: b"salt"[..].into(), iterations: 1, hash: STANDARD.decode(&known[11..]).unwrap().into() };
        assert!(verify(&Password::Hashed(kept.clone()), b"password"));
        for other in [&b"Password"[..], b"", b"password ", &[b'x'; 5000]] {
            assert!(!verify(&Password::Hashed(kept.clone()), other));
        }
        for broken in [Hash { hash: [].into(), ..kept.clone() }, Hash { hash: kept.hash[..63].into(), ..kept.clone() }] {
            assert!(!verify(&Password::Hashed(broken), b"password"), "a part of a hash is none");
        }
        assert!(!verify(&Password::Hashed(Hash { iterations: 0, ..kept }), b"password"));
        assert!(!verify(&Password::Never, b"password"));
    }

    #[test]
    fn a_plain_password_is_compared_whole() {
        let kept = Password::Plain(b"secret"[..].into());
        assert!(verify(&kept, b"secret"));
        for other in [&b"secre"[..], b"secrets", b"", b"Secret"] {
            assert!(!verify(&kept, other));
        }
    }

    #[test]
    fn the_scram_keys_are_those_of_the_rfcs_example() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = scram_verifier(Mechanism::Sha256, b"pencil", &salt, NonZeroU32::new(4096).unwrap());
        assert_eq!(
            scram_text(&verifier),
            "4096:W22ZaJ0SNY7soEsUEjb6gQ==:WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
             wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        assert_eq!(scram_verifier(Mechanism::Sha512, b"pencil", &salt, N).server_key.len(), 64);
    }
}
