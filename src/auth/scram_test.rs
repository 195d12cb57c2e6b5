//! Exchanges: the RFC's own, and what must not be taken for one.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::super::password::scram_verifier;
use super::*;

const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const CHALLENGE: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SIGNATURE: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

/// Knows `user` by `pencil`, as the RFC does, and `a,b=c` by the same.
struct Known;

impl Directory for Known {
    fn verifier(&self, mechanism: Mechanism, user: &str) -> ScramVerifier {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let known = scram_verifier(mechanism, b"pencil", &salt, NonZeroU32::new(4096).unwrap());
        match user {
            "user" | "a,b=c" => known,
            other => made_up(mechanism, &hmac::Key::new(hmac::HMAC_SHA512, b"secret"), other, Some(&known)),
        }
    }

    fn admit(&self, user: &ByteString) -> Result<Principal, Refusal> {
        Ok(Principal::unlimited(user.clone()))
    }
}

fn begin(mechanism: Mechanism) -> Exchange {
    Exchange::new(mechanism, Arc::new(Known), SERVER_NONCE.to_owned())
}

fn step(exchange: Exchange, message: &str) -> Answer {
    exchange.step(Some(&Bytes::copy_from_slice(message.as_bytes())))
}

fn challenged(answer: Answer) -> (String, Exchange) {
    match answer {
        Answer::Challenge { data: Some(data), exchange } => (String::from_utf8(data.to_vec()).unwrap(), exchange),
        other => panic!("no challenge: {other:?}"),
    }
}

#[track_caller]
fn refused(answer: Answer) -> &'static str {
    match answer {
        Answer::Decided(Verdict::Refuse(refusal)) => {
            assert_eq!(refusal.code, ReasonCode::NotAuthorized);
            refusal.reason
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// The client's last message for a challenge.
fn proof(mechanism: Mechanism, header: &str, bare: &str, challenge: &str, password: &[u8]) -> String {
    let nonce = challenge.strip_prefix("r=").unwrap().split(',').next().unwrap();
    let without = format!("c={},r={nonce}", STANDARD.encode(header));
    let salt = STANDARD.decode(challenge.split(",s=").nth(1).unwrap().split(',').next().unwrap()).unwrap();
    let iterations: NonZeroU32 = challenge.rsplit(",i=").next().unwrap().parse().unwrap();
    let mut salted = vec![0; mechanism.key_len()];
    pbkdf2::derive(mechanism.pbkdf2(), iterations, &salt, password, &mut salted);
    let client_key = hmac::sign(&hmac::Key::new(mechanism.hmac(), &salted), b"Client Key");
    let stored = digest::digest(mechanism.digest(), client_key.as_ref());
    let message = format!("{bare},{challenge},{without}");
    let signature = hmac::sign(&hmac::Key::new(mechanism.hmac(), stored.as_ref()), message.as_bytes());
    let proof: Vec<u8> = client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
    format!("{without},p={}", STANDARD.encode(proof))
}

#[test]
fn the_exchange_of_rfc_7677_is_accepted() {
    let (challenge, exchange) = challenged(step(begin(Mechanism::Sha256), FIRST));
    assert_eq!(challenge, CHALLENGE);
    match step(exchange, FINAL) {
        Answer::Decided(Verdict::Accept { principal, data }) => {
            assert_eq!(principal.user_name().map(|name| &**name), Some("user"));
            assert_eq!(data.as_deref(), Some(SIGNATURE.as_bytes()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_names_and_mechanisms_that_are_allowed_are_accepted() {
    let table = [
        (Mechanism::Sha256, "n,,", "n=user,r=abc"),
        (Mechanism::Sha256, "y,,", "n=user,r=abc"),
        (Mechanism::Sha256, "n,a=user,", "n=user,r=abc,x=an-extension"),
        (Mechanism::Sha256, "n,,", "n=a=2Cb=3Dc,r=abc"),
        (Mechanism::Sha512, "n,a=a=2Cb=3Dc,", "n=a=2Cb=3Dc,r=abc"),
        (Mechanism::Sha512, "n,,", "n=user,r=abc"),
    ];
    for (mechanism, header, bare) in table {
        let (challenge, exchange) = challenged(step(begin(mechanism), &format!("{header}{bare}")));
        let answer = step(exchange, &proof(mechanism, header, bare, &challenge, b"pencil"));
        assert!(matches!(answer, Answer::Decided(Verdict::Accept { .. })), "{header}{bare}: {answer:?}");
    }
}

#[test]
fn a_client_without_a_first_message_is_asked_for_it_once() {
    let Answer::Challenge { data: None, exchange } = begin(Mechanism::Sha256).step(None) else { panic!("not asked") };
    let (challenge, exchange) = challenged(step(exchange, FIRST));
    assert_eq!(challenge, CHALLENGE);
    refused(exchange.step(None));
}

#[test]
fn what_is_no_first_message_is_refused() {
    for message in [
        "",
        "n",
        "n,,",
        "n,,n=user",
        "n,,n=user,",
        "n,,n=user,r=",
        "n,,r=abc,n=user",
        "n,,n=,r=abc",
        "n,,n=us=er,r=abc",
        "n,,n=u=2c,r=abc",
        "x,,n=user,r=abc",
        "n,,m=ext,n=user,r=abc",
        "n,b=user,n=user,r=abc",
        "n,a=other,n=user,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "n,,n=user,r=a c",
        "n,,n=us\0er,r=abc",
        FINAL,
    ] {
        refused(step(begin(Mechanism::Sha256), message));
    }
    refused(begin(Mechanism::Sha256).step(Some(&Bytes::from_static(b"n,,n=\xFF,r=abc"))));
    refused(step(begin(Mechanism::Sha256), &format!("{FIRST}{}", "x".repeat(MESSAGE_LEN_MAX))));
}

#[test]
fn what_is_not_the_proof_is_refused() {
    let wrong = |from: &str, to: &str| FINAL.replace(from, to);
    for message in [
        String::new(),
        "surely wrong".to_owned(),
        // Another header, nonce, length, encoding, proof.
        wrong("biws", "eSws"),
        wrong("%hv", "%hw"),
        wrong("r=rOpr", "r=ropr"),
        wrong("AndVQ=", ""),
        wrong("dHzb", "dHz"),
        wrong("dHzb", "eHzb"),
        wrong("p=", "q="),
        wrong(",p=", ",x=1,p="),
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".to_owned(),
        FIRST.to_owned(),
    ] {
        let (_, exchange) = challenged(step(begin(Mechanism::Sha256), FIRST));
        refused(step(exchange, &message));
    }
    let (challenge, exchange) = challenged(step(begin(Mechanism::Sha256), "n,,n=user,r=abc"));
    assert_eq!(
        refused(step(exchange, &proof(Mechanism::Sha256, "n,,", "n=user,r=abc", &challenge, b"pencils"))),
        Refusal::CREDENTIALS.reason
    );
}

#[test]
fn a_name_nobody_has_is_challenged_like_any_other_and_fails_with_the_proof() {
    let ask = |name: &str| challenged(step(begin(Mechanism::Sha256), &format!("n,,n={name},r=abc")));
    let (first, _) = ask("nobody");
    let (again, exchange) = ask("nobody");
    assert_eq!(first, again, "the salt does not change");
    let (known, _) = ask("user");
    let shape = |challenge: &str| (challenge.len(), challenge.ends_with(",i=4096"));
    assert_eq!(shape(&first), shape(&known));
    assert_ne!(ask("nobody2").0, first);
    let answer = step(exchange, &proof(Mechanism::Sha256, "n,,", "n=nobody,r=abc", &again, b"pencil"));
    assert_eq!(refused(answer), Refusal::CREDENTIALS.reason);
}

proptest! {
    #[test]
    fn whatever_comes_is_answered_and_never_accepted(messages in prop::collection::vec("(n,,n=|,r=|c=biws|,p=|=2C|[a-z=,]{0,3}|\\PC{0,9}){0,9}", 1..4)) {
        let mut exchange = Some(begin(Mechanism::Sha256));
        for message in messages {
            let Some(now) = exchange.take() else { break };
            match step(now, &message) {
                Answer::Challenge { exchange: next, .. } => exchange = Some(next),
                Answer::Decided(Verdict::Refuse(_)) => {}
                other => prop_assert!(false, "{message}: {other:?}"),
            }
        }
    }
}
