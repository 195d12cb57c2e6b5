//! The table, in a form that `docs/reliability.md` can hold.

use std::time::Duration;

use super::machine::Machine;

pub struct Report {
    head: String,
    rows: Vec<Row>,
    quick: bool,
}

struct Row {
    what: String,
    program: &'static str,
    value: String,
    /// What is to be reached, and whether it was; only for the program under test.
    goal: Option<(String, bool)>,
}

/// Times in ms, in any order.
#[derive(Debug, Default, Clone)]
pub struct Times(Vec<f64>);

impl Times {
    pub fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1000.0);
    }

    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that this part of all stayed under.
    pub fn at(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position in the list")]
        let position = (sorted.len().saturating_sub(1) as f64 * part).ceil() as usize;
        sorted.get(position).copied().unwrap_or(f64::NAN)
    }
}

impl Report {
    /// `command` repeats the run; `quick`: small numbers, which the end of the report says.
    pub fn new(command: &str, quick: bool) -> Self {
        let machine = Machine::read();
        let head = format!(
            "Nodes and load on one machine: {}, {} cores, Linux {}, load average {} at the start. `{command}`",
            machine.processor, machine.cores, machine.kernel, machine.load_average,
        );
        println!("{head}");
        Self { head, rows: Vec::new(), quick }
    }

    /// Times with their median, p99 and maximum; `goal_ms` is for the p99.
    pub fn times(&mut self, what: &str, program: &'static str, times: &Times, goal_ms: Option<f64>) {
        let p99 = times.at(0.99);
        let value = format!("p50 {:.0}, p99 {p99:.0}, max {:.0} ms ({} readings)", times.at(0.5), times.at(1.0), times.len());
        self.add(what, program, value, goal_ms.map(|goal| (format!("p99 <= {goal:.0} ms"), p99 <= goal)));
    }

    pub fn add(&mut self, what: &str, program: &'static str, value: String, goal: Option<(String, bool)>) {
        eprintln!("    {program}: {what}: {value}");
        let goal = goal.filter(|_| program == "TroupeMQ");
        self.rows.push(Row { what: what.to_owned(), program, value, goal });
    }

    /// False where a goal was missed.
    pub fn finish(self, took: Duration) -> bool {
        println!("\n{}\n", self.head);
        println!("| Figure | Program | Measured | Goal | Reached |");
        println!("| --- | --- | --- | --- | --- |");
        for row in &self.rows {
            let (goal, reached) = match &row.goal {
                Some((goal, reached)) => (goal.as_str(), if *reached { "yes" } else { "**no**" }),
                None => ("", ""),
            };
            println!("| {} | {} | {} | {goal} | {reached} |", row.what, row.program, row.value);
        }
        println!("\nTook {} s.", took.as_secs());
        if self.quick {
            println!("Quick run: small numbers. A smoke test, no figures to quote.");
        }
        self.rows.iter().all(|row| row.goal.as_ref().is_none_or(|(_, reached)| *reached))
    }
}
