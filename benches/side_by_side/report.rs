//! The table for people and the lines for programs.

use std::env;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use troupemq::mqtt::ProtocolVersion;

use crate::Failure;
use crate::broker::{self, Kind};
use crate::machine::Machine;
use crate::scene::{Combine, Figure, Scene};
use crate::settings::Settings;

/// Part of its threads' time from which on the load tool itself may be what was measured.
const LOAD_TOOL_BUSY: f64 = 0.9;

pub struct Report {
    versions: Vec<(Kind, String)>,
    head: Vec<String>,
    rows: Vec<Row>,
    file: File,
    path: PathBuf,
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
        let path = broker::bench_directory()?.join("side_by_side.json");
        let mut file = File::create(&path)?;
        let command = command_line();
        let facts = json!({
            "kind": "run", "command": command, "processor": machine.processor, "cores": machine.cores, "kernel": machine.kernel,
            "load_average": machine.load_average, "quick": settings.quick, "rounds": settings.rounds, "clients": settings.clients,
            "handshakes": settings.handshakes, "pairs": settings.pairs, "window": settings.window,
            "payload_bytes": settings.payload_bytes, "measure_s": settings.measure.as_secs(), "load_threads": settings.load_threads,
            "mqtt": settings.version.name(),
            "brokers": versions.iter().map(|(kind, version)| json!({"name": kind.name(), "version": version, "mode": kind.mode()})).collect::<Vec<_>>(),
        });
        writeln!(file, "{facts}")?;
        Ok(Self {
            head: head(settings, &machine, &versions, &command),
            versions,
            rows: Vec::new(),
            file,
            path,
            quick: settings.quick,
        })
    }

    pub fn add(&mut self, scene: &Scene, kind: Kind, round: usize, figures: &[Figure]) -> Result<(), Failure> {
        for figure in figures {
            let line = json!({"kind": "figure", "scene": scene.name, "broker": kind.name(), "round": round, "name": figure.name,
                "unit": figure.unit, "value": figure.value});
            writeln!(self.file, "{line}")?;
            eprintln!("    {:<34} {:>12} {}", figure.name, show(figure.value), figure.unit);
            if figure.combine == Combine::LoadTool && figure.value > LOAD_TOOL_BUSY {
                eprintln!(
                    "    warning: the load tool was busy {:.0} % of the time: it may be the bottleneck",
                    figure.value * 100.0
                );
            }
            self.row(scene, figure).readings.push((kind, figure.value));
        }
        Ok(())
    }

    /// Prints the table.
    pub fn finish(mut self, took: Duration) -> Result<(), Failure> {
        println!();
        self.head.iter().for_each(|line| println!("{line}"));
        println!();
        self.print_table()?;
        println!();
        self.print_faults();
        self.print_load_tool();
        if self.quick {
            println!("- Quick run: small numbers, one round. A smoke test, no figures to quote.");
        }
        println!("- Took {} s; every reading is in `{}`.", took.as_secs(), self.path.display());
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

    fn print_table(&mut self) -> Result<(), Failure> {
        let columns: String = self.versions.iter().map(|(_, version)| format!(" {version} |")).collect();
        println!("| Scene | Figure |{columns} Ratio |");
        println!("| --- | --- |{} ---: |", " ---: |".repeat(self.versions.len()));
        for row in self.rows.iter().filter(|row| row.combine != Combine::LoadTool) {
            let ours = row.combined(Kind::Troupemq);
            let theirs = row.combined(Kind::Mosquitto);
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
            let better = match row.combine {
                Combine::LowerIsBetter => ", lower is better",
                _ => "",
            };
            let shown = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            println!("| {} | {}, {}{better} |{cells} {shown} |", row.title, row.name, row.unit);
            let line = json!({"kind": "summary", "scene": row.scene, "name": row.name, "unit": row.unit, "troupemq": ours,
                "mosquitto": theirs, "ratio": ratio});
            writeln!(self.file, "{line}")?;
        }
        Ok(())
    }

    /// A rate with losses is the rate of another task.
    fn print_faults(&self) {
        for row in self.rows.iter().filter(|row| row.combine == Combine::Total) {
            for (kind, _) in &self.versions {
                if let Some(count) = row.combined(*kind).filter(|count| *count > 0.0) {
                    let (title, count, name) = (row.title, show(count), row.name);
                    println!("- {title}: {count} {name} with {}: its other figures of this scene do not compare.", kind.name());
                }
            }
        }
    }

    fn print_load_tool(&self) {
        for row in self.rows.iter().filter(|row| row.combine == Combine::LoadTool) {
            let shares: Vec<String> = self
                .versions
                .iter()
                .filter_map(|(kind, _)| row.combined(*kind).map(|share| format!("{:.0} % with {}", share * 100.0, kind.name())))
                .collect();
            let busy = row.readings.iter().any(|(_, share)| *share > LOAD_TOOL_BUSY);
            let warning = if busy { "; it may have been the bottleneck" } else { "" };
            println!("- {}: the load tool was busy {} of the time its threads had{warning}.", row.title, shares.join(", "));
        }
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
    let version = if settings.version == ProtocolVersion::V5 { "MQTT 5" } else { "MQTT 3.1.1" };
    let mut lines = vec![
        format!(
            "Machine: {}, {} cores, Linux {}, load average {} at the start. Command: `{command}`. Median of {} round(s), brokers in turn, each \
             scene with a fresh broker on loopback; nothing is pinned, load tool and broker share the cores.",
            machine.processor, machine.cores, machine.kernel, machine.load_average, settings.rounds
        ),
        format!(
            "{version}, clean start. Connect: {} clients from {} addresses, {} handshakes under way. Pairs: {} publishers and as many \
             subscribers, {} bytes, {} messages of a pair under way, {} s.",
            settings.clients,
            settings.sources,
            settings.handshakes,
            settings.pairs,
            settings.payload_bytes,
            settings.window,
            settings.measure.as_secs()
        ),
    ];
    lines.extend(versions.iter().map(|(kind, version)| format!("{version}: {}.", kind.mode())));
    lines
}

/// How this run can be repeated.
fn command_line() -> String {
    let quick = if env::args().any(|argument| argument == "--quick") { " -- --quick" } else { "" };
    let mut variables: Vec<String> = env::vars()
        .filter(|(name, _)| name.starts_with("TROUPEMQ_BENCH_") && !name.ends_with("_BROKER") && !name.ends_with("_MOSQUITTO"))
        .map(|(name, value)| format!("{name}={value} "))
        .collect();
    variables.sort();
    format!("{}cargo bench --bench side_by_side{quick}", variables.concat())
}

/// Three digits that count, thousands set off.
fn show(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    if magnitude < 100.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{magnitude:.0}");
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}
