//! What the gate does around its authenticators.

use super::*;
use crate::auth::{Authenticator, Principal};
use crate::mqtt::ReasonCode;

/// Lets in by the password `right`, which takes computing.
struct Door;

impl Authenticator for Door {
    fn begin(&self, request: &Request, _: &dyn Fn() -> String) -> Answer {
        let right = request.password.as_deref() == Some(b"right");
        Answer::Compute(Box::new(move || match right {
            true => Answer::Decided(Verdict::Accept { principal: Arc::new(Principal::unlimited("u".into())), data: None }),
            false => Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS)),
        }))
    }

    fn serves(&self, _: &str) -> bool {
        false
    }
}

fn gate() -> Arc<Gate> {
    let chain = Chain::new(vec![Box::new(Door)], false);
    Arc::new(Gate::new(chain, Arc::new(Metrics::new().unwrap())).unwrap())
}

fn request(user: &str, password: &str) -> Request {
    let password = Some(Bytes::copy_from_slice(password.as_bytes()));
    Request { user_name: Some(user.into()), password, ..Request::default() }
}

async fn outcome(gate: &Arc<Gate>, user: &str, password: &str, address: [u8; 4]) -> Option<ReasonCode> {
    let request = request(user, password);
    let mut login = gate.open(&request, Some(address.into())).expect("room");
    let outcome = match login.begin(request) {
        Reply::Now(outcome) => outcome,
        Reply::Later(outcome) => outcome.await,
    };
    match outcome.verdict {
        Verdict::Refuse(refusal) => Some(refusal.code),
        _ => None,
    }
}

#[actix_web::test]
async fn a_user_that_keeps_failing_is_turned_away_unseen_and_nobody_else_is() {
    let gate = gate();
    let here = [192, 0, 2, 1];
    for _ in 0..5 {
        assert_eq!(outcome(&gate, "u", "wrong", here).await, Some(ReasonCode::NotAuthorized));
    }
    assert_eq!(outcome(&gate, "u", "wrong", here).await, Some(ReasonCode::ConnectionRateExceeded));
    assert_eq!(outcome(&gate, "u", "right", [192, 0, 2, 2]).await, None, "from elsewhere");
    assert_eq!(outcome(&gate, "v", "right", here).await, None, "another user from the same address");
    assert_eq!(gate.under_way.load(Ordering::Relaxed), 0, "all that began have ended");
}

#[actix_web::test]
async fn so_many_are_under_way_and_no_more() {
    let gate = gate();
    let request = request("u", "right");
    let logins: Vec<Login> = (0..UNDER_WAY_MAX).map(|_| gate.open(&request, None).expect("room")).collect();
    assert!(gate.open(&request, None).is_none());
    drop(logins);
    assert!(gate.open(&request, None).is_some());
}

#[test]
fn neighbours_in_an_ipv6_network_count_as_one() {
    let key = |text: &str| network(text.parse().unwrap());
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
}

#[test]
fn a_nonce_is_new_each_time_and_fit_for_scram() {
    let (a, b) = (nonce(), nonce());
    assert_ne!(a, b);
    assert_eq!(a.len(), 24);
    assert!(a.bytes().all(|byte| byte.is_ascii_graphic() && byte != b','));
}

#[actix_web::test]
async fn nameless_clients_behind_one_address_do_not_fail_for_each_other() {
    let gate = gate();
    let of = |client_id: &str, password: &str| Request { client_id: client_id.into(), user_name: None, ..request("", password) };
    let outcome = async |request: Request| {
        let mut login = gate.open(&request, Some([192, 0, 2, 1].into())).expect("room");
        match login.begin(request) {
            Reply::Now(outcome) => outcome,
            Reply::Later(outcome) => outcome.await,
        }
        .verdict
    };
    for _ in 0..5 {
        assert_eq!(outcome(of("a", "wrong")).await, Verdict::Refuse(Refusal::CREDENTIALS));
    }
    assert_eq!(outcome(of("a", "right")).await, Verdict::Refuse(Refusal::TOO_MANY_FAILURES));
    assert!(matches!(outcome(of("b", "right")).await, Verdict::Accept { .. }));
}

/// Refuses everybody at once, by whatever way they come.
struct Wall {
    by_user_name: bool,
}

impl Authenticator for Wall {
    fn begin(&self, _: &Request, _: &dyn Fn() -> String) -> Answer {
        Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS))
    }

    fn serves(&self, _: &str) -> bool {
        true
    }

    fn user_name_is_secret(&self) -> bool {
        self.by_user_name
    }
}

#[actix_web::test]
async fn who_fails_by_a_method_or_by_its_user_name_is_turned_away_as_well() {
    let of = |client_id: &str| Request { client_id: client_id.into(), ..Request::default() };
    let by_method = |client_id: &str, _| Request { method: Some("SCRAM-SHA-256".into()), ..of(client_id) };
    let by_user_name = |client_id: &str, n: usize| Request { user_name: Some(format!("ey{n}.e30.AAAA").into()), ..of(client_id) };
    let cases: [(bool, &dyn Fn(&str, usize) -> Request); 2] = [(false, &by_method), (true, &by_user_name)];
    for (in_user_name, request) in cases {
        let chain = Chain::new(vec![Box::new(Wall { by_user_name: in_user_name })], false);
        let gate = Arc::new(Gate::new(chain, Arc::new(Metrics::new().unwrap())).unwrap());
        let code = |request: Request| {
            let mut login = gate.open(&request, Some([192, 0, 2, 1].into())).expect("room");
            match login.begin(request) {
                Reply::Now(Outcome { verdict: Verdict::Refuse(refusal), .. }) => refusal.code,
                _ => panic!("neither late nor accepted"),
            }
        };
        for n in 0..5 {
            assert_eq!(code(request("a", n)), ReasonCode::NotAuthorized);
        }
        assert_eq!(code(request("a", 5)), ReasonCode::ConnectionRateExceeded, "by its user name: {in_user_name}");
        assert_eq!(code(request("b", 0)), ReasonCode::NotAuthorized);
    }
}

#[test]
fn a_token_in_place_of_a_user_name_is_not_kept_to_be_logged() {
    let gate = gate();
    let name = |user: &str| gate.open(&request(user, "x"), None).expect("room").who.user_name.clone();
    assert_eq!(name("ann").as_deref(), Some("ann"));
    assert_eq!(name("eyJhbGciOiJIUzI1NiJ9.e30.AAAA"), None);
}
