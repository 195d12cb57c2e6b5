//! A Docker engine of the tests' own: another socket, data and runtime directory, no `docker0`, no rule of iptables, no forwarding, so that it
//! neither needs nor disturbs what else uses the machine's network.
//!
//! A keeper, a shell that waits for the end of its input, starts it and undoes it: also where the tests are killed, their end of the
//! pipe closes, and containers, networks, engine and directory go.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::harness::script::{Finished, run};
use crate::harness::{program, repository};

/// What the program under test is built into.
pub const IMAGE: &str = "troupemq:test";
/// An engine answers within this after its start.
const START: Duration = Duration::from_secs(20);
/// A command of the engine is done within this; stopping a container takes its grace period.
const COMMAND: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);

/// Arguments: the engine's directory and its storage driver.
const KEEPER: &str = r#"
home=$1
export DOCKER_HOST=unix://$home/d.sock
dockerd --storage-driver="$2" --data-root "$home/data" --exec-root "$home/exec" --pidfile "$home/dockerd.pid" -H "$DOCKER_HOST" \
  --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --bridge=none \
  --default-address-pool base=10.177.0.0/16,size=24 --log-level warn >"$home/log" 2>&1 </dev/null &
engine=$!
cat >/dev/null
docker ps -aq | xargs -r docker rm -fv >/dev/null 2>&1
docker network prune -f >/dev/null 2>&1
kill -TERM "$engine" 2>/dev/null
wait "$engine"
rm -rf "$home"
"#;

pub struct Engine {
    home: PathBuf,
    keeper: Child,
}

/// The engine of this test run, with the image. `None`, with the reason printed and written down for the summary, where there can be none.
pub fn engine(test: &str) -> Option<&'static Engine> {
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        permitted()?;
        let engine = Engine::start()?;
        engine.build(IMAGE);
        Ok(engine)
    });
    match engine {
        Ok(engine) => {
            note(test, "ran", "");
            Some(engine)
        }
        Err(reason) => {
            skip(test, &format!("no Docker engine here: {reason}"));
            None
        }
    }
}

/// Says that a test is left out, and why, here and in the summary.
pub fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED {test}: {reason}");
    note(test, "skipped", &format!("{test}: {reason}\n"));
}

fn note(test: &str, kind: &str, text: &str) {
    let folder = repository().join("target/containers");
    fs::create_dir_all(&folder).expect("a folder for the summary");
    for kind in ["ran", "skipped"] {
        _ = fs::remove_file(folder.join(format!("{test}.{kind}")));
    }
    fs::write(folder.join(format!("{test}.{kind}")), text).expect("a line for the summary");
}

/// Why no engine can be started here, as far as that can be told without trying.
fn permitted() -> Result<(), String> {
    if std::env::var_os("TROUPEMQ_CONTAINERS").is_none() {
        return Err("they have a run of their own: make test-containers".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root can start it".to_owned());
    }
    for command in ["dockerd", "docker", "ip"] {
        if find(command).is_none() {
            return Err(format!("there is no {command}; install Debian's docker.io and iproute2, or run `make container-needs`"));
        }
    }
    // Another engine has closed the machine to bridged packets, and has rules for its own bridges only.
    let bridged = fs::read_to_string("/proc/sys/net/bridge/bridge-nf-call-iptables").is_ok_and(|on| on.trim() == "1");
    let policy = Command::new("iptables").args(["-S", "FORWARD"]).env("PATH", path()).output();
    if bridged && policy.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("-P FORWARD DROP")) {
        return Err(
            "the machine's firewall drops what bridges forward (iptables -P FORWARD ACCEPT would let it through)".to_owned()
        );
    }
    Ok(())
}

/// Where users do not look for programs, but root does.
fn path() -> String {
    format!("{}:/usr/local/sbin:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Looks a program up as a shell does.
pub fn find(command: &str) -> Option<PathBuf> {
    path().split(':').map(|folder| Path::new(folder).join(command)).find(|file| file.is_file())
}

impl Engine {
    /// Starts one, with the storage driver that works here.
    pub fn start() -> Result<Self, String> {
        let mut reasons = Vec::new();
        for driver in ["overlay2", "vfs"] {
            match Self::start_with(driver) {
                Ok(engine) => return Ok(engine),
                Err(reason) => reasons.push(format!("{driver}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }

    fn start_with(driver: &str) -> Result<Self, String> {
        // Short, for the paths of sockets in it.
        let home = tempfile::Builder::new().prefix("tmq-dk-").tempdir().expect("a temporary directory").keep();
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&home)
            .arg(driver)
            .env("PATH", path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the tests; the keeper sees that they are gone.
            .process_group(0)
            .spawn()
            .expect("a shell");
        let mut engine = Self { home, keeper };
        let deadline = Instant::now() + START;
        loop {
            if engine.try_docker(&["info", "--format", "{{.ID}}"]).code == Some(0) {
                return Ok(engine);
            }
            let ended = !engine.runs();
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(engine.home.join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("it said nothing").to_owned();
                return Err(if ended { last } else { format!("no answer within {START:?}: {last}") });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Whether the engine's process is there still.
    fn runs(&mut self) -> bool {
        let Ok(pid) = fs::read_to_string(self.home.join("dockerd.pid")) else {
            // It has not got so far, or has ended before.
            let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
            return !log.contains("failed to start daemon");
        };
        Path::new("/proc").join(pid.trim()).exists()
    }

    /// Ends the engine and waits until nothing of it is left.
    pub fn end(mut self) -> PathBuf {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("the keeper ends");
        self.home.clone()
    }

    /// The program under test, in the image's last stage.
    fn build(&self, tag: &str) {
        let script = repository().join("config/container/image.sh");
        let built =
            run(Command::new(script).arg(program()).arg(tag).env("DOCKER_HOST", self.host()).env("PATH", path()), COMMAND);
        assert_eq!(built.code, Some(0), "the image is not built: {}{}", built.stdout, built.stderr);
    }

    /// An image from a folder with a Dockerfile that needs nothing from elsewhere.
    pub fn build_plain(&self, folder: &str, tag: &str) {
        let mut command = Command::new("docker");
        command.args(["build", "--quiet", "--tag", tag, folder]).env("DOCKER_BUILDKIT", "0");
        let built = run(command.env("DOCKER_HOST", self.host()).env("PATH", path()), COMMAND);
        assert_eq!(built.code, Some(0), "the image {tag} is not built: {}{}", built.stdout, built.stderr);
    }

    pub fn host(&self) -> String {
        format!("unix://{}/d.sock", self.home.display())
    }

    pub fn try_docker(&self, arguments: &[&str]) -> Finished {
        run(Command::new("docker").args(arguments).env("DOCKER_HOST", self.host()).env("PATH", path()), COMMAND)
    }

    /// Runs a command that must succeed; what it printed, without the line end.
    #[track_caller]
    pub fn docker(&self, arguments: &[&str]) -> String {
        let finished = self.try_docker(arguments);
        assert_eq!(finished.code, Some(0), "docker {}: {}", arguments.join(" "), finished.stderr);
        finished.stdout.trim_end().to_owned()
    }

    /// Makes a network of 254 addresses; what they begin with, such as `10.176.3.`.
    pub fn network(&self, name: &str) -> String {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        for _ in 0..u8::MAX {
            // Networks of other test runs, and of whoever else, are passed by.
            let prefix = format!("10.176.{}.", NEXT.fetch_add(1, Ordering::Relaxed));
            if routed(&prefix) {
                continue;
            }
            let made = self.try_docker(&["network", "create", "--subnet", &format!("{prefix}0/24"), name]);
            if made.code == Some(0) {
                return prefix;
            }
            assert!(made.stderr.contains("overlap"), "network {name}: {}", made.stderr);
        }
        panic!("no free network in 10.176.0.0/16");
    }

    /// What the engine has a container's programs say.
    pub fn logs(&self, container: &str) -> String {
        let finished = self.try_docker(&["logs", container]);
        finished.stdout + &finished.stderr
    }

    /// The address of a container in a network.
    pub fn address(&self, container: &str, network: &str) -> std::net::Ipv4Addr {
        let format = format!("{{{{(index .NetworkSettings.Networks \"{network}\").IPAddress}}}}");
        let text = self.docker(&["inspect", "--format", &format, container]);
        text.parse().unwrap_or_else(|error| panic!("{container} in {network}: {text:?}: {error}"))
    }
}

fn routed(prefix: &str) -> bool {
    let routes = Command::new("ip").args(["-4", "route"]).env("PATH", path()).output().expect("ip tells its routes");
    String::from_utf8_lossy(&routes.stdout).contains(&format!("{prefix}0/24"))
}

/// The machine's rules and links, as far as an engine could touch them.
fn surroundings() -> [String; 3] {
    let print = |command: &str, arguments: &[&str]| {
        let output = Command::new(command).args(arguments).env("PATH", path()).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let rules = print("iptables-save", &[]);
    // Lines with counters and times change by themselves.
    let rules = rules.lines().filter(|line| line.starts_with(['-', ':'])).map(|line| line.split(" [").next().unwrap_or(line));
    let forwarding = fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
    [rules.collect::<Vec<_>>().join("\n"), forwarding, print("ip", &["-br", "link", "show", "type", "bridge"])]
}

#[test]
fn an_engine_leaves_nothing_behind() {
    use crate::harness::permit::{Weight, acquire};

    // Alone: other tests' engine has bridges of its own.
    let _permit = acquire(Weight::Whole);
    if engine("an_engine_leaves_nothing_behind").is_none() {
        return;
    }
    let before = surroundings();
    let engine = Engine::start().expect("one could be started a moment ago");
    engine.build("troupemq:left-behind");
    let during = surroundings();
    engine.network("left-behind");
    engine.docker(&["run", "-d", "--network", "left-behind", "troupemq:left-behind"]);
    assert_eq!((&during[0], &during[1]), (&before[0], &before[1]), "rules and forwarding are left alone");
    assert_ne!(surroundings()[2], before[2], "the network has a bridge");
    let pid = fs::read_to_string(engine.home.join("dockerd.pid")).expect("its process");
    let home = engine.end();
    assert!(!home.exists() && !Path::new("/proc").join(pid.trim()).exists());
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    assert!(!mounts.contains(&home.display().to_string()), "{mounts}");
    assert_eq!(surroundings(), before);
}
