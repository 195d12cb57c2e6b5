//! `config/examples/fleet`: driving times that the reporting service has no room for, on `$dropped`.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinSet;
use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{Story, line, login, may_not_publish, may_not_subscribe, text};
use crate::harness::client::{Client, user_property};
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const DRIVERS: usize = 4;
const RECORDS_EACH: usize = 150;
/// `max-queue-size` of the example.
const QUEUE: usize = 500;
/// Lines of the many that are alike.
const SHOWN: usize = 5;

fn record(driver: &str, number: usize) -> String {
    format!("{{\"driver\":\"{driver}\",\"record\":{number},\"minutes\":15}}")
}

#[tokio::test]
async fn every_record_is_delivered_or_told_dropped_and_none_is_both_or_neither() {
    let _permit = acquire(Weight::Node);
    let story = Story::start("fleet");
    let trucks = story.by("TCP Listener with TLS").await;
    let server = story.node.mqtt();
    let mut archive = Client::connect(server, &login("archive", "archive-1").persistent()).await;
    archive.subscribe("$share/archive/$dropped/#", QoS::AtLeastOnce).await;
    // The reporting service has a session, and is away.
    let service = login("reporting", "reporting").persistent();
    let mut reporting = Client::connect(server, &service).await;
    assert_eq!(reporting.subscribe("drivers/+/times", QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
    reporting.disconnect().await;

    let mut driving = JoinSet::new();
    for number in 1..=DRIVERS {
        driving.spawn(async move {
            let name = format!("driver-{number}");
            let mut truck = Client::connect(trucks, &login(&name, &format!("truck-{number}"))).await;
            let topic = format!("drivers/{name}/times");
            for number in 0..RECORDS_EACH {
                let acknowledged = truck.publish(&topic, record(&name, number).as_bytes(), QoS::AtLeastOnce).await;
                assert_eq!(acknowledged, ReasonCode::Success);
            }
            truck.disconnect().await;
        });
    }
    driving.join_all().await;

    // What has no room is told at once.
    let missing = DRIVERS * RECORDS_EACH - QUEUE;
    let mut dropped = BTreeSet::new();
    println!("The archive sees:");
    for number in 0..missing {
        let message = archive.message().await;
        if number < SHOWN {
            println!("{}", line(&message, "drop"));
        }
        let facts = ["hmq-drop-reason", "hmq-drop-origin", "hmq-drop-client"].map(|name| user_property(&message, name));
        assert_eq!(facts, [Some("Client Message Queue Full"), Some("client"), Some("reporting")]);
        let driver = message.topic.strip_prefix("$dropped/drivers/").and_then(|rest| rest.strip_suffix("/times"));
        let driver = driver.unwrap_or_else(|| panic!("{}", message.topic));
        let payload = text(&message);
        assert!(payload.contains(driver), "{}: {payload}", message.topic);
        assert!(dropped.insert(payload.clone()), "{payload} is told twice");
    }
    println!("... {missing} in all");
    archive.nothing().await;
    wait::until("drops are counted", SOON, || {
        (story.node.metric("com_hivemq_messages_dropped_topic_message_created_client_count") == missing as f64).then_some(())
    });

    let mut reporting = Client::connect(server, &service).await;
    let mut delivered = BTreeSet::new();
    for _ in 0..QUEUE {
        let payload = reporting.text().await;
        assert!(delivered.insert(payload.clone()), "{payload} comes twice");
    }
    reporting.nothing().await;
    println!("by driver      delivered  dropped");
    let mut by_driver: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for number in 1..=DRIVERS {
        let name = format!("driver-{number}");
        for number in 0..RECORDS_EACH {
            let record = record(&name, number);
            let ways = [delivered.contains(&record), dropped.contains(&record)].map(usize::from);
            assert_eq!(ways[0] + ways[1], 1, "{record}");
            let counts = by_driver.entry(name.clone()).or_default();
            *counts = [counts[0] + ways[0], counts[1] + ways[1]];
        }
    }
    by_driver.iter().for_each(|(name, [delivered, dropped])| println!("{name}       {delivered:>9}  {dropped:>7}"));
    assert_eq!((delivered.len(), dropped.len()), (QUEUE, missing), "and nothing that nobody wrote");

    let mut driver = Client::connect(trucks, &login("driver-1", "truck-1")).await;
    may_not_subscribe(&mut driver, &["$dropped/#", "$dropped/drivers/driver-1/times", "drivers/#"]).await;
    may_not_subscribe(&mut reporting, &["$dropped/#", "$share/archive/$dropped/#", "#"]).await;
    may_not_subscribe(&mut archive, &["drivers/+/times", "#", "$expired/#"]).await;
    may_not_publish(driver, "$dropped/drivers/driver-1/times").await;
    may_not_publish(archive, "$dropped/x").await;
}
