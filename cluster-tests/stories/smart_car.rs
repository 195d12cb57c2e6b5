//! `config/examples/smart-car`: requests to unlock a car that do not reach it in time, on `$expired`.

use std::process::Command;
use std::time::Duration;

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{Story, line, login, may_not_publish, may_not_subscribe, text};
use crate::harness::client::{Client, publish, user_property};
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::{Running, interop_skipped, start};
use crate::harness::{SOON, wait};

const UNLOCK: &str = "cars/vin-1001/unlock";

/// A request of the app that is good for so many seconds.
fn unlock(request: &str, seconds: u32) -> Publish {
    let mut packet = publish(UNLOCK, request.as_bytes(), QoS::AtLeastOnce);
    packet.properties.message_expiry_interval = Some(seconds);
    packet.properties.user_properties.push(("model".into(), "roadster".into()));
    packet
}

#[tokio::test]
async fn an_unlock_request_reaches_the_car_in_time_or_the_analyst_and_never_the_car_later() {
    let _permit = acquire(Weight::Node);
    let story = Story::start("smart-car");
    let (cars, apps) = (story.by("TCP Listener with TLS").await, story.by("Websocket Listener with TLS").await);
    let watching = (!interop_skipped("mosquitto_sub")).then(|| watch(&story));

    let car = login("vin-1001", "vin-1001").persistent();
    let mut driving = Client::connect(cars, &car).await;
    assert_eq!(driving.subscribe(UNLOCK, QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
    let mut app = Client::connect(apps, &login("anna", "phone")).await;

    // Longer than on the street: a machine full of tests may stand still for a moment.
    assert_eq!(app.try_publish(unlock("request 1", 30)).await, Ok(ReasonCode::Success));
    assert_eq!(driving.text().await, "request 1");
    driving.disconnect().await;
    // In an underground car park.
    assert_eq!(app.try_publish(unlock("request 2", 2)).await, Ok(ReasonCode::Success));
    wait::until("the request expires", SOON, || (story.node.metric("com_hivemq_messages_expired_messages") == 1.0).then_some(()));

    let mut back = Client::connect(cars, &car).await;
    assert!(back.session_present());
    back.nothing().await;

    // The analyst was not there, and has it from the declared shared subscription.
    let mut analyst = Client::connect(story.node.mqtt(), &login("analyst", "analyst-1")).await;
    analyst.subscribe("$share/analysts/$expired/#", QoS::AtLeastOnce).await;
    let expired = analyst.message().await;
    println!("The analyst sees:\n{}", line(&expired, "exp"));
    assert_eq!(
        (&*expired.topic, text(&expired).as_str(), expired.qos),
        ("$expired/cars/vin-1001/unlock", "request 2", QoS::AtLeastOnce)
    );
    let names: Vec<&str> = expired.properties.user_properties.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["model", "hmq-exp-timestamp", "hmq-exp-origin", "hmq-exp-client"]);
    let values = ["model", "hmq-exp-origin", "hmq-exp-client"].map(|name| user_property(&expired, name));
    assert_eq!(values, [Some("roadster"), Some("client"), Some("vin-1001")]);
    analyst.nothing().await;
    if let Some(watching) = watching {
        let finished = watching.finish(SOON);
        println!("mosquitto_sub printed:\n{}", finished.stdout);
        let told = "$expired/cars/vin-1001/unlock request 2 model:roadster hmq-exp-timestamp:";
        assert!(finished.stdout.starts_with(told) && finished.stdout.lines().count() == 1, "{finished:?}");
    }

    may_not_subscribe(
        &mut back,
        &["$expired/#", "$expired/cars/vin-1001/unlock", "$share/analysts/$expired/#", "cars/vin-1002/unlock", "#"],
    )
    .await;
    may_not_subscribe(&mut app, &["$expired/#", UNLOCK]).await;
    may_not_subscribe(&mut analyst, &["cars/#", "#", "$dropped/#", "$client-events/#"]).await;
    may_not_publish(back, "$expired/cars/vin-1001/unlock").await;
    may_not_publish(analyst, "$expired/x").await;
    // Not even retained for whoever comes later.
    assert_eq!(app.publish_retained(UNLOCK, b"for ever", QoS::AtLeastOnce).await, ReasonCode::NotAuthorized);
}

/// The analyst's tool, with the command of the example's README; waits until it has subscribed.
fn watch(story: &Story) -> Running {
    let subacks = "com_hivemq_messages_outgoing_suback_count";
    let before = story.node.metric(subacks);
    let port = story.node.mqtt().port().to_string();
    let login = "-V 5 -u analyst -P analyst-secret -t $expired/# -q 1 -C 1 -W 30";
    let running = start(
        Command::new("mosquitto_sub").args(["-h", "127.0.0.1", "-p", &port]).args(login.split(' ')).args(["-F", "%t %p %P"]),
    );
    wait::until("mosquitto_sub has subscribed", Duration::from_secs(30), || (story.node.metric(subacks) > before).then_some(()));
    running
}
