//! From the configuration to the authenticators of a node.

use std::sync::Arc;

use crate::actor::gate::Gate;
use crate::actor::gate::key_watch::KeyWatch;
use crate::actor::gate::watch::Watch;
use crate::auth::certificate::ClientCertificate;
use crate::auth::{Authenticator, Chain};
use crate::config::settings::SecuritySettings;
use crate::telemetry::{EventLog, Metrics};

/// What decides which clients come in; empty where nobody does.
#[derive(Default)]
pub(super) struct Authentication {
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) watch: Option<Watch>,
    pub(super) keys: Option<KeyWatch>,
}

/// A token is looked at before a certificate, and that before the files of passwords: who shows one means it.
pub(super) fn build(security: &SecuritySettings, metrics: &Arc<Metrics>, events: &EventLog) -> std::io::Result<Authentication> {
    let settings = &security.authentication;
    if settings.is_off() {
        return Ok(Authentication::default());
    }
    let watch = settings.file_rbac.clone().map(|rbac| Watch::start(rbac, &rand::random()));
    let rbac = watch.as_ref().map(|watch| watch.rbac().clone());
    let keys = settings.jwt.clone().map(|jwt| KeyWatch::start(jwt, rbac.clone()));
    let mut links: Vec<Box<dyn Authenticator>> = Vec::new();
    if let Some(keys) = &keys {
        links.push(Box::new(keys.jwt().clone()));
    }
    if let Some(name) = settings.client_certificate {
        links.push(Box::new(ClientCertificate::new(name, rbac.clone())));
    }
    if let Some(rbac) = rbac {
        links.push(Box::new(rbac));
    } else if let Some(keys) = &keys {
        links.push(Box::new(keys.jwt().last_word()));
    }
    let chain = Chain::new(links, security.allow_anonymous);
    let gate = Gate::new(chain, Arc::clone(metrics))?.with_events(events.clone());
    Ok(Authentication { gate: Some(Arc::new(gate)), watch, keys })
}
