//! A client certificate stands for the user it names: the certification authority has proved who that is.

use super::file_rbac::{FileRbac, check_names};
use super::{Answer, Authenticator, CertificateNames, Principal, Refusal, Request, Verdict};
use crate::config::settings::CertificateName;
use crate::mqtt::ReasonCode;

/// Lets in who shows a certificate. A client without one, or that proves itself by a password or a method as well, is passed on.
pub struct ClientCertificate {
    name: CertificateName,
    /// Where the user's roles are, whatever the listener; without it a certificate allows everything.
    rbac: Option<FileRbac>,
}

impl ClientCertificate {
    pub fn new(name: CertificateName, rbac: Option<FileRbac>) -> Self {
        Self { name, rbac }
    }

    fn user<'a>(&self, names: &'a CertificateNames) -> Option<&'a bytestring::ByteString> {
        let name = match self.name {
            CertificateName::CommonName => &names.common_name,
            CertificateName::SubjectAlternativeName => &names.subject_alternative_name,
        };
        name.as_ref().filter(|name| !name.is_empty())
    }
}

impl Authenticator for ClientCertificate {
    fn begin(&self, request: &Request, _: &dyn Fn() -> String) -> Answer {
        let Some(user) = request.certificate.as_ref().and_then(|names| self.user(names)) else { return Answer::Pass };
        if request.method.is_some() || (request.password.is_some() && self.rbac.is_some()) {
            return Answer::Pass;
        }
        if request.user_name.as_ref().is_some_and(|claimed| claimed != user) {
            return Answer::refuse(ReasonCode::BadUserNameOrPassword, "the user name is not the certificate's");
        }
        // `listener-names` says who is asked for a password. A listener that is not among them is no reason to allow everything.
        let Some(rbac) = &self.rbac else {
            return Answer::accept(Principal::unlimited(user.clone()), None);
        };
        if let Some(refusal) = check_names(&request.client_id, user) {
            return Answer::Decided(Verdict::Refuse(refusal));
        }
        match rbac.principal(user, request) {
            Some(principal) => Answer::accept(principal, None),
            None => Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS)),
        }
    }

    fn serves(&self, _: &str) -> bool {
        false
    }
}
