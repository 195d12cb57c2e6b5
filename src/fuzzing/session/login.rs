//! How a client gets in, and proves itself again: verdicts to hand in, and what the machine may do at each of them.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use bytestring::ByteString;

use super::super::Draw;
use crate::auth::{Principal, Refusal, Verdict};
use crate::config::rbac::{Activity, Permission, Retain, Role, Share, Template};
use crate::mqtt::packet::{Auth, Connect};
use crate::mqtt::{QoS, ReasonCode};
use crate::session::{Evidence, Registration, Stage};

/// The way of one client, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Nothing is known of it.
    Stranger,
    /// A verdict is awaited.
    Judging,
    /// Its AUTH is awaited.
    Challenged,
    /// The verdict lets it in.
    Accepted,
    /// The shard was asked.
    Registering,
    Granted,
    Refused,
}

/// Whose turn it is in a re-authentication.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Turn {
    Outside,
    Client,
}

#[derive(Debug)]
pub(super) struct Login {
    pub(super) step: Step,
    again: Option<Turn>,
    pub(super) principal: Arc<Principal>,
    client_id: ByteString,
    /// The AUTH that the last verdict asks for.
    due: Option<(ReasonCode, Option<Bytes>)>,
    /// For CONNACK.
    data: Option<Bytes>,
}

impl Login {
    pub(super) fn new() -> Self {
        Self { step: Step::Stranger, again: None, principal: Arc::default(), client_id: ByteString::new(), due: None, data: None }
    }

    /// Whether a verdict is awaited.
    pub(super) fn is_asked(&self) -> bool {
        self.step == Step::Judging || self.again == Some(Turn::Outside)
    }

    /// Whether what was proved has expired of a client that is let in.
    pub(super) fn has_expired(&self, wall_ms: u64) -> bool {
        self.step == Step::Granted && self.principal.expires_at_ms().is_some_and(|at_ms| at_ms <= wall_ms)
    }

    /// Whether an authentication is going on, which has its time.
    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.step, Step::Judging | Step::Challenged) || self.again.is_some()
    }

    /// What a verdict that was asked for comes to.
    pub(super) fn judge(&mut self, verdict: &Verdict) {
        let before_connack = self.step == Step::Judging;
        match verdict {
            Verdict::Continue { data } => {
                self.due = Some((ReasonCode::ContinueAuthentication, data.clone()));
                match before_connack {
                    true => self.step = Step::Challenged,
                    false => self.again = Some(Turn::Client),
                }
            }
            Verdict::Accept { principal, data } if before_connack => {
                (self.step, self.principal, self.data) = (Step::Accepted, principal.clone(), data.clone());
            }
            // The session belongs to the user that began it.
            Verdict::Accept { principal, .. } if principal.user_name() != self.principal.user_name() => {}
            Verdict::Accept { principal, data } => {
                (self.again, self.principal) = (None, principal.clone());
                self.due = Some((ReasonCode::Success, data.clone()));
            }
            Verdict::Refuse(_) if before_connack => self.step = Step::Refused,
            Verdict::Refuse(_) => {}
        }
    }

    /// Whether all that the verdict asks for was sent.
    pub(super) fn is_settled(&self) -> bool {
        self.due.is_none() && self.step != Step::Accepted
    }

    pub(super) fn see_question(&mut self, evidence: &Evidence, connect: &Connect) {
        assert!(!self.is_asked() && !evidence.client_id.is_empty(), "{evidence:?}");
        assert_eq!(evidence.method, connect.properties.authentication_method);
        match evidence.stage {
            Stage::Connect => {
                assert_eq!(self.step, Step::Stranger);
                assert_eq!((&evidence.user_name, &evidence.password), (&connect.username, &connect.password));
                assert_eq!(evidence.data, connect.properties.authentication_data);
                self.client_id = evidence.client_id.clone();
                self.step = Step::Judging;
            }
            Stage::Again => {
                assert!(self.step == Step::Granted && self.again.is_none());
                self.again = Some(Turn::Outside);
            }
            Stage::Further if self.step == Step::Challenged => self.step = Step::Judging,
            Stage::Further => {
                assert_eq!((self.step, self.again), (Step::Granted, Some(Turn::Client)));
                self.again = Some(Turn::Outside);
            }
        }
        assert_eq!(self.client_id, evidence.client_id);
        // Only with a method there is more than one question. [MQTT-4.12.0-6]
        assert!(evidence.stage == Stage::Connect || evidence.method.is_some());
    }

    /// Nobody is registered who was not let in, and nobody twice.
    pub(super) fn see_registration(&mut self, registration: &Registration, connect: &Connect) {
        assert_eq!(self.step, Step::Accepted);
        self.step = Step::Registering;
        assert_eq!(registration.client_id, self.client_id);
        assert_eq!(registration.username.as_ref(), self.principal.user_name().or(connect.username.as_ref()));
        let will = registration.will.as_ref().map(|will| &will.message);
        assert!(will.is_none_or(|will| self.principal.may_publish(&will.topic, will.qos, will.retain)));
    }

    pub(super) fn see_auth(&mut self, auth: &Auth, connect: &Connect) {
        let properties = &auth.properties;
        // [MQTT-4.12.0-5] [MQTT-4.12.0-6]
        assert!(properties.authentication_method.is_some());
        assert_eq!(properties.authentication_method, connect.properties.authentication_method);
        assert_eq!(Some((auth.reason_code, properties.authentication_data.clone())), self.due.take());
    }

    /// The method and the data that CONNACK tells [MQTT-4.12.0-5].
    pub(super) fn told(&self, connect: &Connect) -> (Option<ByteString>, Option<Bytes>) {
        let method = connect.properties.authentication_method.clone();
        let data = self.data.clone().filter(|_| method.is_some());
        (method, data)
    }
}

/// Any verdict.
pub(super) fn verdict(draw: &mut Draw<'_>, wall_ms: u64) -> Verdict {
    let byte = draw.byte();
    let data = if byte & 0x80 != 0 { draw.maybe(|draw| Bytes::copy_from_slice(draw.bytes())) } else { None };
    match byte & 0x0F {
        0..=8 => Verdict::Accept { principal: principal(byte & 0x0F, wall_ms), data },
        9..=13 => Verdict::Continue { data },
        _ => Verdict::Refuse(draw.pick(&[
            Refusal::CREDENTIALS,
            Refusal::METHOD,
            Refusal::BUSY,
            Refusal::TOO_MANY_FAILURES,
            Refusal { code: ReasonCode::BadUserNameOrPassword, reason: "" },
        ])),
    }
}

pub(super) fn accepted() -> Verdict {
    Verdict::Accept { principal: Arc::default(), data: None }
}

/// For so long some may stay, ms.
const STAY_MS: u64 = 20_000;

/// Nobody, users who may do everything, and two who may do little; some of them not for long.
fn principal(kind: u8, wall_ms: u64) -> Arc<Principal> {
    static LITTLE: LazyLock<[Arc<Role>; 2]> = LazyLock::new(|| {
        let permission = |topic: &str, activity| Permission {
            topic: Template::Fixed(topic.into()),
            activity,
            qos: [true; 3],
            retain: Retain::All,
            share: Share::All,
            group: None,
        };
        let narrow = Permission {
            qos: [true, true, false],
            retain: Retain::NotRetained,
            share: Share::NotShared,
            ..permission("t", Activity::All)
        };
        let one = Role { id: "one".into(), permissions: vec![narrow, permission("u", Activity::Subscribe)] };
        let other = Role { id: "other".into(), permissions: vec![permission("t/#", Activity::Publish)] };
        [Arc::new(one), Arc::new(other)]
    });
    let little = |at: usize| Principal::with_roles("u".into(), "client".into(), [LITTLE[at].clone()].into());
    Arc::new(match kind {
        3 => Principal::anonymous().until(Some(wall_ms + STAY_MS)),
        0..=2 => Principal::anonymous(),
        4 => Principal::unlimited("v".into()),
        5 => little(0),
        6 => little(1),
        7 => Principal::unlimited("u".into()).until(Some(wall_ms + STAY_MS)),
        _ => Principal::unlimited("u".into()),
    })
}

/// The least that a subscription with this granted QoS asked for is allowed.
pub(super) fn may_have_asked(principal: &Principal, filter: &crate::mqtt::SubscriptionFilter, granted: QoS) -> bool {
    let asked = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().filter(|qos| *qos >= granted);
    asked.into_iter().any(|qos| principal.may_subscribe(filter, qos))
}
