//! Campaigns of simulated runs, replays of single ones, and the shrinking of those that fail. See docs/proof/simulator.md.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use sanlock_sim::campaign::{self, Case, PEER_EVERY, Plan};
use sanlock_sim::record::Standing;
use sanlock_sim::report;
use sanlock_sim::sabotage::Sabotage;
use sanlock_sim::settings::{Kind, Settings};
use sanlock_sim::shrink;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(10);
/// How often the record is written.
const SAVES: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Simulates many hosts on faulty disks", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seed after seed, until so many hours of hosts were simulated or something is violated
    Campaign {
        /// Hours of hosts, all hosts of all runs together
        #[arg(long)]
        host_hours: f64,
        /// The first seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Threads [default: one for each core]
        #[arg(long)]
        threads: Option<usize>,
        /// dense, long, or mixed: a twenty-fifth of the hours dense
        #[arg(long, default_value = "mixed")]
        kind: String,
        /// One run in so many has a peer that behaves like the original; 0: none has
        #[arg(long, default_value_t = PEER_EVERY)]
        peer_every: u64,
        /// Writes the figures there, too
        #[arg(long)]
        json: Option<PathBuf>,
        /// Keeps there how far it is, and goes on from there if it was interrupted; refused if the code, or the plan, is another one
        #[arg(long, requires = "code")]
        record: Option<PathBuf>,
        /// What names the code that runs
        #[arg(long, requires = "record")]
        code: Option<String>,
    },
    /// Repeats one run and prints its log
    Replay {
        #[command(flatten)]
        case: CaseArguments,
        /// The last lines of the log to print
        #[arg(long, default_value_t = 300)]
        lines: usize,
    },
    /// Makes a failing run smaller
    Shrink {
        #[command(flatten)]
        case: CaseArguments,
        /// Runs at most
        #[arg(long, default_value_t = 3000)]
        tries: u32,
    },
}

#[derive(Args)]
struct CaseArguments {
    /// The seed
    #[arg(long)]
    seed: u64,
    /// The settings; without them, those that campaigns of this kind use with the seed
    #[arg(long, conflicts_with_all = ["kind", "references"])]
    settings: Option<Settings>,
    /// dense or long
    #[arg(long, default_value = "dense")]
    kind: String,
    /// Hosts that behave like the original
    #[arg(long, default_value_t = 0)]
    references: u64,
    /// Something to break
    #[arg(long)]
    sabotage: Option<Sabotage>,
    /// The beginning of the violations that count then
    #[arg(long, requires = "sabotage")]
    wanted: Option<String>,
}

fn kind_named(name: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| format!("no kind of run: {name:?}"))
}

impl CaseArguments {
    fn case(self) -> Result<Case, String> {
        let broken = self.sabotage.map(|s| (s, &*self.wanted.unwrap_or_default().leak()));
        let settings = match self.settings {
            Some(settings) => settings,
            None => kind_named(&self.kind)?.settings(self.seed, self.references),
        };
        Ok(Case { seed: self.seed, settings, broken })
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Campaign { host_hours, seed, threads, kind, peer_every, json, record, code } => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let mixed = Plan::mixed(seed, host_hours, threads.unwrap_or(cores));
            let record = record.zip(code).map(|(path, code)| Record { path, code });
            planned(Plan { peer_every, ..mixed }, &kind, host_hours)
                .and_then(|plan| campaign(&plan, json, record.as_ref()))
        }
        Command::Replay { case, lines } => case.case().map(|case| replay(&case, lines)),
        Command::Shrink { case, tries } => case.case().map(|case| shrunk(&case, tries)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(2)
    })
}

/// The plan with runs of this kind, if it is not to be mixed.
fn planned(plan: Plan, kind: &str, host_hours: f64) -> Result<Plan, String> {
    if kind == "mixed" {
        return Ok(plan);
    }
    Ok(Plan { host_hours: vec![(kind_named(kind)?, host_hours)], ..plan })
}

/// The file in which a campaign keeps how far it is, and the code that it is of.
struct Record {
    path: PathBuf,
    code: String,
}

fn campaign(plan: &Plan, json: Option<PathBuf>, record: Option<&Record>) -> Result<ExitCode, String> {
    let host_hours: f64 = plan.host_hours.iter().map(|(_, hours)| hours).sum();
    let begun = Instant::now();
    let from = record.map(|record| Standing::load(&record.path, plan, &record.code)).transpose()?.flatten();
    let from = from.unwrap_or_else(|| Standing::new(plan));
    let before = from.took;
    let save = |at: &Standing| match record {
        Some(record) => at.save(&record.path, plan, &record.code, begun.elapsed()),
        None => Ok(()),
    };
    save(&from)?;
    let told = Mutex::new((begun, begun, Ok(())));
    let progress = |at: &Standing| {
        let Ok(mut last) = told.lock() else { return ControlFlow::Break(()) };
        let (told, saved, result) = &mut *last;
        if told.elapsed() >= PROGRESS {
            *told = Instant::now();
            let end = if std::io::stderr().is_terminal() { "\r" } else { "\n" };
            eprint!(
                "{} of {host_hours} host-hours, {} s{end}",
                report::brief(&at.report),
                begun.elapsed().as_secs()
            );
        }
        if saved.elapsed() >= SAVES {
            *saved = Instant::now();
            *result = save(at);
        }
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let at = campaign::run(plan, from, progress);
    save(&at)?;
    let (report, took) = (&at.report, before + begun.elapsed());
    print!("{}", report::text(report, took));
    if at.sittings > 1 {
        println!("in {} sittings", at.sittings);
    }
    if let Some(path) = json {
        let text = report::json(report, took);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(if report.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A run that ends well is a success, also if something was broken.
fn replay(case: &Case, lines: usize) -> ExitCode {
    let mut world = case.world(true);
    let well = world.run();
    let mut out = std::io::stdout().lock();
    for line in world.log_tail(lines) {
        // Whoever reads it has seen enough.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    if well {
        println!("no violation: seed {}, settings {}", case.seed, case.settings);
        return ExitCode::SUCCESS;
    }
    for violation in &world.checks.violations {
        println!("{violation}");
    }
    ExitCode::FAILURE
}

fn shrunk(case: &Case, tries: u32) -> ExitCode {
    let Err(failure) = case.run() else {
        println!("no violation: seed {}, settings {}", case.seed, case.settings);
        return ExitCode::SUCCESS;
    };
    println!("{failure}\n");
    let smaller = shrink::shrink(&failure, tries, |smaller| eprintln!("{}", smaller.case.settings));
    println!("{}\n({} runs)", smaller.failure, smaller.tries);
    ExitCode::FAILURE
}
