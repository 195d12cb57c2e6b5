//! Several authenticators, asked in order until one decides.

use std::sync::Arc;

use super::{Answer, Authenticator, Principal, Refusal, Request};
use crate::mqtt::ReasonCode;

/// The authenticators of a node, and what happens to whom none decides about.
pub struct Chain {
    links: Vec<Box<dyn Authenticator>>,
    allow_undecided: bool,
}

impl Chain {
    pub fn new(links: Vec<Box<dyn Authenticator>>, allow_undecided: bool) -> Self {
        Self { links, allow_undecided }
    }

    /// Asks; never answers `Pass`. What a computation passes on goes to the next authenticator within the same computation.
    pub fn begin(self: &Arc<Self>, request: &Arc<Request>, nonce: fn() -> String) -> Answer {
        // [MQTT-4.12.0-1]
        if let Some(method) = &request.method
            && !self.links.iter().any(|link| link.serves(method))
        {
            return Answer::Decided(super::Verdict::Refuse(Refusal::METHOD));
        }
        self.ask(0, request, nonce)
    }

    /// Whether some client proves itself by its user name.
    pub fn user_name_is_secret(&self) -> bool {
        self.links.iter().any(|link| link.user_name_is_secret())
    }

    fn ask(self: &Arc<Self>, from: usize, request: &Arc<Request>, nonce: fn() -> String) -> Answer {
        for (index, link) in self.links.iter().enumerate().skip(from) {
            match link.begin(request, &nonce) {
                Answer::Pass => {}
                Answer::Compute(computation) => {
                    let (chain, request) = (Arc::clone(self), Arc::clone(request));
                    return Answer::Compute(Box::new(move || match computation() {
                        Answer::Pass => chain.ask(index + 1, &request, nonce).computed(),
                        answer => answer,
                    }));
                }
                answer => return answer,
            }
        }
        if self.allow_undecided && request.method.is_none() {
            return Answer::accept(Principal::anonymous(), None);
        }
        Answer::refuse(ReasonCode::NotAuthorized, "Authentication failed, no authenticator has decided")
    }
}

impl Answer {
    /// Runs what is left to compute; for whoever is computing already.
    fn computed(mut self) -> Self {
        while let Self::Compute(computation) = self {
            self = computation();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// Says the same to everybody: P passes, C computes and passes, A accepts, D denies, R computes and denies.
    struct Says(char);

    impl Authenticator for Says {
        fn begin(&self, _: &Request, _: &dyn Fn() -> String) -> Answer {
            match self.0 {
                'P' => Answer::Pass,
                'C' => Answer::Compute(Box::new(|| Answer::Pass)),
                'A' => Answer::accept(Principal::anonymous(), None),
                'R' => Answer::Compute(Box::new(|| Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS)))),
                _ => Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS)),
            }
        }

        fn serves(&self, method: &str) -> bool {
            self.0.to_string() == method
        }
    }

    fn outcome(links: &str, allow: bool, method: Option<&str>) -> Result<(), ReasonCode> {
        let links = links.chars().map(|c| Box::new(Says(c)) as Box<dyn Authenticator>).collect();
        let request = Request { method: method.map(Into::into), ..Request::default() };
        match Arc::new(Chain::new(links, allow)).begin(&Arc::new(request), String::new).computed() {
            Answer::Decided(Verdict::Accept { .. }) => Ok(()),
            Answer::Decided(Verdict::Refuse(refusal)) => Err(refusal.code),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_that_decides_decides_and_nobody_is_a_refusal_unless_allowed() {
        const DENIED: Result<(), ReasonCode> = Err(ReasonCode::NotAuthorized);
        let table = [
            ("A", false, Ok(())),
            ("D", true, DENIED),
            ("PA", false, Ok(())),
            ("CA", false, Ok(())),
            ("CCA", false, Ok(())),
            ("CPD", true, DENIED),
            ("RA", true, DENIED),
            ("AD", false, Ok(())),
            ("P", false, DENIED),
            ("C", false, DENIED),
            ("P", true, Ok(())),
            ("C", true, Ok(())),
            ("", true, Ok(())),
        ];
        for (links, allow, expected) in table {
            assert_eq!(outcome(links, allow, None), expected, "{links} {allow}");
        }
    }

    #[test]
    fn a_method_nobody_serves_is_refused_and_one_that_is_served_is_never_anonymous() {
        assert_eq!(outcome("PA", true, Some("X")), Err(ReasonCode::BadAuthenticationMethod));
        assert_eq!(outcome("P", true, Some("P")), Err(ReasonCode::NotAuthorized));
        assert_eq!(outcome("PA", true, Some("P")), Ok(()));
    }
}
