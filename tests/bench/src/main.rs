//! `sanlock-bench`: see the README beside this package.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sanlock_bench::measure::ALL;
use sanlock_bench::row::Row;
use sanlock_bench::{Measure, PlaceKind, Setting, json, machine, page, plot, table};
use sanlock_conformance::Program;
use serde_json::{Value, json};

/// The original sanlock and ours side by side, on the same device in the same run.
#[derive(Parser)]
struct Arguments {
    /// Only these measures (see --list).
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// On which storage.
    #[arg(long, value_delimiter = ',', default_values_t = [PlaceKind::File, PlaceKind::Loop512, PlaceKind::Loop4096].map(Kind))]
    storage: Vec<Kind>,
    /// Few repetitions and small sizes: shows that everything works, the figures say little.
    #[arg(long)]
    quick: bool,
    /// Also write everything to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw plots into this directory.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Measure nothing: renew the tables of this page of the guide, the measured ones only with --from.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "quick", "json", "plots", "list"])]
    page: Option<PathBuf>,
    /// The run whose figures the page is to have, as --json wrote it.
    #[arg(long, value_name = "JSON", requires = "page")]
    from: Option<PathBuf>,
    /// List the measures and end.
    #[arg(long)]
    list: bool,
}

/// A kind of storage as an argument.
#[derive(Clone, Copy)]
struct Kind(PlaceKind);

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.word())
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        <PlaceKind as clap::ValueEnum>::from_str(word, false).map(Self)
    }
}

/// What came of a run.
#[derive(Default)]
struct Results {
    rows: BTreeMap<&'static str, Vec<Row>>,
    measures: Vec<Value>,
    failed: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for measure in &ALL {
            println!("{:<12} {}", measure.name, measure.about);
        }
        return ExitCode::SUCCESS;
    }
    if let Some(page) = &arguments.page {
        return match renew(page, arguments.from.as_deref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let unknown = arguments.only.iter().find(|name| ALL.iter().all(|measure| measure.name != **name));
    if let Some(name) = unknown {
        eprintln!("there is no measure {name:?}; --list shows what there is");
        return ExitCode::from(2);
    }
    if !Program::both_available() {
        return ExitCode::FAILURE;
    }
    if cfg!(debug_assertions) {
        eprintln!("warning: built without optimisation (use cargo run --release): the figures mean nothing");
    }
    let results = run(&arguments);
    if let Err(error) = write(&arguments, &results) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    if results.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Puts the tables into a page that are to be there now.
fn renew(page: &Path, run: Option<&Path>) -> Result<(), String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| named(path, &error));
    let run: Option<Value> = match run {
        Some(path) => {
            Some(serde_json::from_str(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => None,
    };
    let text =
        page::renewed(&read(page)?, run.as_ref()).map_err(|error| format!("{}: {error}", page.display()))?;
    fs::write(page, text).map_err(|error| named(page, &error))
}

fn run(arguments: &Arguments) -> Results {
    let mut results = Results::default();
    for Kind(place) in &arguments.storage {
        for measure in ALL.iter().filter(|measure| wanted(measure, *place, arguments)) {
            run_one(measure, Setting { place: *place, quick: arguments.quick }, &mut results);
        }
    }
    results
}

fn wanted(measure: &Measure, place: PlaceKind, arguments: &Arguments) -> bool {
    let named = arguments.only.iter().any(|name| name == measure.name);
    let by_default = arguments.only.is_empty() && !(arguments.quick && measure.long);
    measure.suits(place) && (named || by_default)
}

fn run_one(measure: &Measure, setting: Setting, results: &mut Results) {
    let word = setting.place.word();
    let load = machine::load();
    let begin = Instant::now();
    // A measure that fails must not take the figures of the others along. It has said why.
    let rows = catch_unwind(AssertUnwindSafe(|| (measure.run)(&setting)));
    let seconds = begin.elapsed().as_secs_f64();
    println!("\n{} on {word} ({seconds:.0} s, load {load:.1} before)", measure.name);
    match rows {
        Ok(rows) => {
            print!("{}", table::table(&rows));
            results.measures.push(json!({
                "measure": measure.name,
                "storage": word,
                "load_before": load,
                "seconds": seconds,
                "rows": rows.iter().map(json::row).collect::<Vec<_>>(),
            }));
            results.rows.entry(word).or_default().extend(rows);
        }
        Err(_) => {
            println!("FAILED, the reason is above");
            results.failed.push(format!("{} on {word}", measure.name));
        }
    }
}

fn write(arguments: &Arguments, results: &Results) -> Result<(), String> {
    let checks = || results.rows.values().flatten().flat_map(|row| &row.checks);
    let (all, met) = (checks().count(), checks().filter(|check| check.met()).count());
    println!("\n{met} of {all} targets met; failed measures: {}", results.failed.len());
    for (word, rows) in &results.rows {
        for row in rows.iter().filter(|row| !row.met()) {
            print!("  {word}: {}", table::one(row));
        }
    }
    if let Some(path) = &arguments.json {
        let text = json!({
            "quick": arguments.quick,
            "optimised": !cfg!(debug_assertions),
            "kernel": machine::kernel(),
            "processors": machine::processors(),
            "targets": { "all": all, "met": met },
            "failed": results.failed,
            "measures": results.measures,
        });
        fs::write(path, format!("{text:#}\n")).map_err(|error| named(path, &error))?;
    }
    if let Some(dir) = &arguments.plots {
        fs::create_dir_all(dir).map_err(|error| named(dir, &error))?;
        for (word, rows) in &results.rows {
            plot::draw(dir, word, rows)?;
        }
    }
    Ok(())
}

fn named(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
