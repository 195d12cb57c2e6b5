//! What the image is, and one container of it.

use std::time::{Duration, Instant};

use serde_json::Value;
use troupemq::mqtt::QoS;

use super::engine::{Engine, IMAGE, engine};
use super::pods::{MQTT_PORT, probe};
use crate::harness::client::{Client, Options};
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

/// What the issue asks for.
const IMAGE_BYTES_MAX: u64 = 60_000_000;
/// Of no user that the image knows, as OpenShift runs it.
const ANY_USER: &str = "12345:0";

/// A container and a volume that are gone with it.
struct Lone<'a> {
    engine: &'a Engine,
    name: &'static str,
}

impl Drop for Lone<'_> {
    fn drop(&mut self) {
        _ = self.engine.try_docker(&["rm", "--force", "--volumes", self.name]);
        _ = self.engine.try_docker(&["network", "rm", self.name]);
        _ = self.engine.try_docker(&["volume", "rm", "--force", self.name]);
    }
}

#[test]
fn the_image_is_small_has_no_shell_and_says_what_it_is() {
    let _permit = acquire(Weight::Node);
    let Some(engine) = engine("the_image_is_small_has_no_shell_and_says_what_it_is") else { return };
    let inspected: Value = serde_json::from_str(&engine.docker(&["image", "inspect", IMAGE])).expect("JSON");
    let (image, config) = (&inspected[0], &inspected[0]["Config"]);
    let bytes = image["Size"].as_u64().expect("a size");
    println!("the image has {:.1} MB", bytes as f64 / 1e6);
    assert!(bytes < IMAGE_BYTES_MAX, "{bytes}");
    assert_eq!((&config["User"], &config["StopSignal"]), (&Value::from("10000:0"), &Value::from("SIGTERM")));
    assert_eq!(config["Healthcheck"]["Test"], serde_json::json!(["CMD", "troupemq", "health", "--liveness"]));
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    assert_eq!(keys(&config["Volumes"]), ["/opt/hivemq/data", "/opt/hivemq/log"]);
    assert_eq!(keys(&config["ExposedPorts"]), ["1883/tcp", "7000/tcp", "8000/tcp", "8080/tcp"]);
    let version = engine.docker(&["run", "--rm", "--network", "none", IMAGE, "version"]);
    assert_eq!(version, format!("troupemq {}", env!("CARGO_PKG_VERSION")));
    let label = &config["Labels"]["org.opencontainers.image.version"];
    assert_eq!(label, env!("CARGO_PKG_VERSION"), "the Dockerfile's label is the version's");
    let shell = engine.try_docker(&["run", "--rm", "--network", "none", "--entrypoint", "sh", IMAGE]);
    assert_eq!(shell.code, Some(127), "{shell:?}");
}

#[test]
fn variables_that_are_wrong_are_told_before_anything_starts() {
    let _permit = acquire(Weight::Node);
    let Some(engine) = engine("variables_that_are_wrong_are_told_before_anything_starts") else { return };
    let cases: [(&[&str], &str); 4] = [
        (&["HIVEMQ_ALLOW_ALL_CLIENTS=false"], "which other machines reach, and no authenticator"),
        (&["TROUPEMQ_CLUSTER=true", "HIVEMQ_DNS_DISCOVERY_ADDRESS=nodes"], "found 0 characters; allowed: 16 characters or more"),
        (
            &["TROUPEMQ_CLUSTER=true", "TROUPEMQ_CLUSTER_SECRET=0123456789abcdef"],
            "the environment variable HIVEMQ_DNS_DISCOVERY_ADDRESS",
        ),
        (&["HIVEMQ_REST_API_ENABLED=yes"], "environment variable HIVEMQ_REST_API_ENABLED: found \"yes\"; allowed: true or false"),
    ];
    for (variables, expected) in cases {
        let mut arguments = vec!["run", "--rm", "--network", "none"];
        variables.iter().for_each(|variable| arguments.extend(["--env", variable]));
        arguments.push(IMAGE);
        let commands: [&[&str]; 2] = [&[], &["config", "check", "conf/config.xml"]];
        for command in commands {
            let refused = engine.try_docker(&[&arguments[..], command].concat());
            assert_eq!(refused.code, Some(2), "{variables:?}: {refused:?}");
            assert!(refused.stderr.contains(expected), "{variables:?}: {}", refused.stderr);
        }
    }
    let checked = engine.docker(&["run", "--rm", "--network", "none", IMAGE, "config", "check", "conf/config.xml"]);
    assert!(checked.contains("MQTT over TCP on 0.0.0.0:1883") && checked.contains("/opt/hivemq/log"), "{checked}");
}

#[tokio::test]
async fn a_container_needs_no_rights_tells_its_health_and_keeps_its_sessions() {
    let _permit = acquire(Weight::Node);
    let test = "a_container_needs_no_rights_tells_its_health_and_keeps_its_sessions";
    let Some(engine) = engine(test) else { return };
    let lone = Lone { engine, name: "lone" };
    engine.network(lone.name);
    let volume = format!("{}:/opt/hivemq/data", lone.name);
    let mut arguments = vec!["run", "--detach", "--name", lone.name, "--network", lone.name, "--volume", &volume];
    arguments.extend(["--user", ANY_USER, "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]);
    arguments.extend(["--health-interval", "1s", IMAGE]);
    engine.docker(&arguments);
    wait_ready(engine, lone.name);
    let health = || engine.docker(&["inspect", "--format", "{{.State.Health.Status}}", lone.name]);
    wait::until("the engine finds it healthy", SOON, || (health() == "healthy").then_some(()));
    let asked = engine.try_docker(&["exec", lone.name, "troupemq", "health"]);
    assert_eq!((asked.code, asked.stdout.trim()), (Some(0), "UP"), "{asked:?}");
    let status = engine.try_docker(&["exec", lone.name, "troupemq", "cluster", "status"]);
    assert_eq!(status.code, Some(0), "the node is found without --data: {status:?}");

    let kept = Options::v5("kept").persistent();
    let mut client = Client::connect(mqtt(engine, lone.name), &kept).await;
    client.subscribe("kept/#", QoS::AtLeastOnce).await;
    client.disconnect().await;
    let mut publisher = Client::connect(mqtt(engine, lone.name), &Options::v5("publisher")).await;
    publisher.publish("kept/1", b"stored", QoS::AtLeastOnce).await;
    publisher.disconnect().await;

    engine.docker(&["stop", "--time", "30", lone.name]);
    assert_eq!(engine.docker(&["inspect", "--format", "{{.State.ExitCode}}", lone.name]), "0", "{}", engine.logs(lone.name));
    let began = Instant::now();
    engine.docker(&["start", lone.name]);
    wait_ready(engine, lone.name);
    println!("ready {:?} after its start was asked for", began.elapsed());
    let mut client = Client::connect(mqtt(engine, lone.name), &kept).await;
    assert!(client.session_present());
    assert_eq!(client.text().await, "stored");
    client.disconnect().await;
    // The event log is in the other volume.
    engine.docker(&["cp", &format!("{}:/opt/hivemq/log/event.log", lone.name), "-"]);
}

fn mqtt(engine: &Engine, name: &str) -> std::net::SocketAddr {
    (engine.address(name, name), MQTT_PORT).into()
}

#[track_caller]
fn wait_ready(engine: &Engine, name: &str) {
    let deadline = Instant::now() + 2 * SOON;
    while probe(engine.address(name, name), "readiness").is_none_or(|(status, _)| status != 200) {
        assert!(Instant::now() < deadline, "{name} is not ready: {}", engine.logs(name));
        std::thread::sleep(Duration::from_millis(20));
    }
}
