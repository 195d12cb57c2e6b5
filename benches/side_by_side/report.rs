//! The table for people and the lines for programs.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use troupemq::load::{BUSY_MAX, Outcome, Slice, show};
use troupemq::mqtt::ProtocolVersion;
use troupemq::telemetry::utc::Utc;

use crate::Failure;
use crate::broker::Kind;
use crate::common::machine::Machine;
use crate::goals;
use crate::plot::{self, Storm};
use crate::scene::{Combine, Figure, Scene};
use crate::settings::{Settings, bench_directory};
use crate::watch::Watched;

/// The scene that is drawn.
const DRAWN: &str = "connect";

pub struct Report {
    versions: Vec<(Kind, String)>,
    head: Vec<String>,
    rows: Vec<Row>,
    /// By scene, broker and what was wrong.
    faults: Vec<String>,
    storms: Vec<(Kind, Vec<Slice>)>,
    clients: usize,
    file: File,
    directory: PathBuf,
    /// Where the table is kept.
    kept: PathBuf,
    quick: bool,
}

/// One figure of one scene over all rounds of all brokers.
struct Row {
    scene: &'static str,
    title: &'static str,
    name: &'static str,
    unit: &'static str,
    combine: Combine,
    readings: Vec<(Kind, f64)>,
}

impl Report {
    pub fn new(settings: &Settings, kinds: &[Kind]) -> Result<Self, Failure> {
        let machine = Machine::read();
        let versions = kinds.iter().map(|kind| Ok((*kind, kind.version()?))).collect::<Result<Vec<_>, Failure>>()?;
        let directory = bench_directory()?;
        let mut file = File::create(directory.join("side_by_side.json"))?;
        let command = command_line();
        let facts = json!({
            "kind": "run", "command": command, "processor": machine.processor, "cores": machine.cores, "kernel": machine.kernel,
            "load_average": machine.load_average, "quick": settings.quick, "rounds": settings.rounds, "mqtt": settings.version.name(),
            "brokers": versions.iter().map(|(kind, version)| json!({"name": kind.name(), "version": version, "mode": kind.mode()})).collect::<Vec<_>>(),
        });
        writeln!(file, "{facts}")?;
        let kept =
            if settings.is_whole() { PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches") } else { directory.clone() };
        Ok(Self {
            head: head(settings, &machine, &versions, &command),
            versions,
            rows: Vec::new(),
            faults: Vec::new(),
            storms: Vec::new(),
            clients: settings.clients,
            file,
            directory,
            kept,
            quick: settings.quick,
        })
    }

    pub fn add(&mut self, scene: &Scene, kind: Kind, round: usize, outcome: &Outcome, watched: &Watched) -> Result<(), Failure> {
        let mut figures = (scene.figures)(outcome, watched);
        let busiest = outcome.tool.busiest.unwrap_or_default();
        figures.push(Figure { name: "load tool", unit: "of its busiest thread", value: busiest, combine: Combine::LoadTool });
        let line =
            json!({"kind": "round", "scene": scene.name, "broker": kind.name(), "round": round, "load_tool": outcome.json()});
        writeln!(self.file, "{line}")?;
        for figure in &figures {
            let line = json!({"kind": "figure", "scene": scene.name, "broker": kind.name(), "round": round, "name": figure.name,
                "unit": figure.unit, "value": figure.value});
            writeln!(self.file, "{line}")?;
            eprintln!("    {:<34} {:>12} {}", figure.name, show(figure.value), figure.unit);
            self.row(scene, figure).readings.push((kind, figure.value));
        }
        if let Some(bottleneck) = outcome.tool.bottleneck() {
            eprintln!("    warning: {bottleneck}");
        }
        for fault in &outcome.faults {
            eprintln!("    {fault}");
            self.faults.push(format!("{}, {}, round {round}: {fault}.", scene.title, kind.name()));
        }
        if scene.name == DRAWN {
            // The last round is drawn.
            self.storms.retain(|(of, _)| *of != kind);
            self.storms.push((kind, outcome.series.clone()));
        }
        Ok(())
    }

    /// Prints the table, and keeps it.
    pub fn finish(mut self, took: Duration) -> Result<(), Failure> {
        let mut text = String::from("# Results of `make bench`\n\n");
        text += &self.head.join("\n\n");
        text += "\n\n";
        text += &self.table()?;
        text += "\n\"Must\" and \"goal\" are the issue's; \"2 x\" is twice mosquitto's figure of the same run. A figure without them is for the reader.\n\n";
        if !self.storms.is_empty() {
            let storms: Vec<Storm> =
                self.storms.iter().map(|(kind, slices)| Storm { name: kind.name().into(), slices: slices.clone() }).collect();
            let title = format!("{} clients connect, clean start", show(self.clients as f64));
            fs::write(self.kept.join("storm.svg"), plot::svg(&title, &storms))?;
            text += "![connects per second and p99 over the storm](storm.svg)\n\n";
        }
        text += &self.remarks();
        _ = writeln!(text, "- It took {} s.", took.as_secs());
        fs::write(self.kept.join("RESULTS.md"), &text)?;
        println!("{text}");
        println!(
            "- Kept in `{}`; every reading is in `{}`.",
            self.kept.display(),
            self.directory.join("side_by_side.json").display()
        );
        Ok(())
    }

    fn row(&mut self, scene: &Scene, figure: &Figure) -> &mut Row {
        let position = self.rows.iter().position(|row| row.scene == scene.name && row.name == figure.name);
        let position = position.unwrap_or_else(|| {
            let (name, unit, combine) = (figure.name, figure.unit, figure.combine);
            self.rows.push(Row { scene: scene.name, title: scene.title, name, unit, combine, readings: Vec::new() });
            self.rows.len() - 1
        });
        &mut self.rows[position]
    }

    fn table(&mut self) -> Result<String, Failure> {
        let columns: String = self.versions.iter().map(|(_, version)| format!(" {version} |")).collect();
        let mut text = format!("| Scene | Figure |{columns} Ratio | Must | Goal | Reached |\n");
        _ = writeln!(text, "| --- | --- |{} ---: | ---: | ---: | --- |", " ---: |".repeat(self.versions.len()));
        for row in self.rows.iter().filter(|row| row.combine != Combine::LoadTool) {
            let (ours, theirs) = (row.combined(Kind::Troupemq), row.combined(Kind::Mosquitto));
            let cells: String = self
                .versions
                .iter()
                .map(|(kind, _)| format!(" {} |", row.combined(*kind).map_or("-".to_owned(), show)))
                .collect();
            let ratio = match (row.combine, ours, theirs) {
                (Combine::HigherIsBetter | Combine::LowerIsBetter, Some(ours), Some(theirs)) if theirs != 0.0 => {
                    Some(ours / theirs)
                }
                _ => None,
            };
            let shown = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let bounds = goals::of(row.scene, row.name);
            let (must, goal) = bounds.map_or_else(Default::default, |(must, goal)| (must.shown(), goal.shown()));
            // Small numbers reach or miss nothing.
            let verdict = ours.filter(|_| !self.quick).map_or("", |ours| goals::verdict(row.scene, row.name, ours, theirs));
            let better = if row.combine == Combine::LowerIsBetter { ", lower is better" } else { "" };
            let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
            _ = writeln!(text, "| {} | {}{unit}{better} |{cells} {shown} | {must} | {goal} | {verdict} |", row.title, row.name);
            let line = json!({"kind": "summary", "scene": row.scene, "name": row.name, "unit": row.unit, "troupemq": ours,
                "mosquitto": theirs, "ratio": ratio, "reached": verdict});
            writeln!(self.file, "{line}")?;
        }
        Ok(text)
    }

    /// What a reader of the table must know.
    fn remarks(&self) -> String {
        let mut text = String::new();
        for fault in &self.faults {
            _ = writeln!(text, "- {fault}");
        }
        for row in self.rows.iter().filter(|row| row.combine == Combine::LoadTool) {
            for (kind, _) in &self.versions {
                if let Some(share) = row.combined(*kind).filter(|share| *share >= BUSY_MAX) {
                    let (title, share) = (row.title, share * 100.0);
                    _ = writeln!(
                        text,
                        "- {title}, {}: a thread of the load tool was busy {share:.0} % of the time; it may have been the bottleneck.",
                        kind.name()
                    );
                }
            }
        }
        if self.quick {
            text += "- Quick run: small numbers, one round. A smoke test, no figures to quote.\n";
        }
        text
    }
}

impl Row {
    /// The figure of the table; `None` for a broker that did not run.
    fn combined(&self, kind: Kind) -> Option<f64> {
        let mut values: Vec<f64> = self.readings.iter().filter(|(of, _)| *of == kind).map(|(_, value)| *value).collect();
        if values.is_empty() {
            return None;
        }
        if self.combine == Combine::Total {
            return Some(values.iter().sum());
        }
        values.sort_by(f64::total_cmp);
        let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(f64::midpoint(lower, upper))
    }
}

fn head(settings: &Settings, machine: &Machine, versions: &[(Kind, String)], command: &str) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let version = if settings.version == ProtocolVersion::V5 { "MQTT 5" } else { "MQTT 3.1.1" };
    let number = |number: usize| show(number as f64);
    let mut lines = vec![
        format!(
            "{} UTC, {}, {} cores, Linux {}, load average {} at the start. Command: `{command}`. Median of {} round(s), brokers in turn, each \
             scene with a fresh broker on loopback; nothing is pinned, load tool and brokers share the cores.",
            Utc::of(now).for_log(),
            machine.processor,
            machine.cores,
            machine.kernel,
            machine.load_average,
            settings.rounds
        ),
        format!(
            "{version}, {} bytes a message. Connect: {} clients from {} addresses, {} handshakes under way; {} at once. Pairs: {}, {} messages of each \
             in flight, {} s; at a rate: {} messages a second. Fan: 1 to {} and {} to 1; shared: {} publishers, 10 members; there a message is in \
             flight until it is received. Retained: {}, to a new `#`. Offline: {} sessions, {} messages each.",
            settings.payload_bytes,
            number(settings.clients),
            settings.sources.len(),
            settings.handshakes,
            number(settings.burst),
            number(settings.pairs),
            settings.window,
            settings.measure.as_secs(),
            show(settings.rate),
            number(settings.fan),
            number(settings.fan),
            number(settings.shared_publishers),
            number(settings.retained),
            number(settings.sessions),
            number(settings.messages),
        ),
    ];
    lines.push(versions.iter().map(|(kind, version)| format!("{version}: {}.", kind.mode())).collect::<Vec<_>>().join(" "));
    lines
}

/// How this run can be repeated.
fn command_line() -> String {
    let quick = if env::args().any(|argument| argument == "--quick") { "TROUPEMQ_BENCH_QUICK=1 " } else { "" };
    let mut variables: Vec<String> = env::vars()
        .filter(|(name, _)| name.starts_with("TROUPEMQ_BENCH_") && !name.ends_with("_BROKER") && !name.ends_with("_MOSQUITTO"))
        .map(|(name, value)| format!("{name}={value} "))
        .collect();
    variables.sort();
    format!("{quick}{}make bench", variables.concat())
}
