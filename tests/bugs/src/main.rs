//! Runs the catchers on every bug. See docs/proof/bugs.md.
#![forbid(unsafe_code)]

use sanlock_bugs::catchers::Catchers;
use sanlock_bugs::patch::Patch;
use sanlock_bugs::table::{Kind, Results, Row, UNPATCHED};
use sanlock_bugs::tree::Tree;
use sanlock_bugs::{home, page_path, results_path, root};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: cargo run -p sanlock-bugs -- [--work DIR] [NAME…]
       cargo run -p sanlock-bugs -- --page

Applies each patch of tests/bugs/patches to a copy of the committed tree and runs the catchers on it; writes results.txt and the table of
docs/proof/bugs.md. NAME: only the patches whose names contain it, `unpatched` for the tree without any. --page: only the table.
DIR, by default target/bugs, keeps what was built.";

fn main() -> ExitCode {
    let mut names = Vec::new();
    let mut work = root().join("target/bugs");
    let mut arguments = std::env::args().skip(1);
    let mut only_page = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--page" => only_page = true,
            "--work" => match arguments.next() {
                Some(directory) => work = PathBuf::from(directory),
                None => return usage(),
            },
            name if name.starts_with('-') => return usage(),
            name => names.push(name.to_owned()),
        }
    }
    let done = if only_page { write_page() } else { run(&names, &work) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn read_results() -> Result<Results, String> {
    match std::fs::read_to_string(results_path()) {
        Ok(text) => Results::parse(&text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Results::default()),
        Err(e) => Err(format!("{}: {e}", results_path().display())),
    }
}

fn write_page() -> Result<bool, String> {
    let page = std::fs::read_to_string(page_path()).map_err(|e| format!("{}: {e}", page_path().display()))?;
    let page = read_results()?.page(&page, &Patch::all(&home().join("patches"))?)?;
    std::fs::write(page_path(), page).map_err(|e| format!("{}: {e}", page_path().display()))?;
    Ok(true)
}

/// The rows are written one by one: a run that is broken off is not lost. Those of patches that are gone go, too.
fn write_row(name: &str, row: Row, patches: &[Patch]) -> Result<(), String> {
    let mut results = read_results()?;
    results.0.retain(|name, _| name == UNPATCHED || patches.iter().any(|patch| patch.name == *name));
    println!("{name}: {}, {}: {} after {}, {} s", row.verdict, row.kind, row.by, row.after, row.seconds);
    results.0.insert(name.to_owned(), row);
    std::fs::write(results_path(), results.text()).map_err(|e| format!("{}: {e}", results_path().display()))
}

fn run(names: &[String], work: &std::path::Path) -> Result<bool, String> {
    let patches = Patch::all(&home().join("patches"))?;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| name.contains(n.as_str()));
    let tree = Tree::at_head(&root(), work)?;
    let catchers = Catchers::new(&tree.root, &work.join("target"));
    let mut well = true;
    if wanted(UNPATCHED) {
        // The other catchers are ordinary tests.
        let row = judge(&catchers, &[Kind::Random], "", "passed")?;
        well &= row.verdict == "passed";
        write_row(UNPATCHED, row, &patches)?;
    }
    for patch in patches.iter().filter(|patch| wanted(&patch.name)) {
        let order = Kind::order(patch);
        let row = match tree.with(patch, || judge(&catchers, &order, &patch.catcher, "missed"))? {
            Ok(row) => row,
            Err(error) => {
                // What was found of an earlier state is not known of this one.
                eprintln!("{}: {error}", patch.name);
                Row::nothing("not judged", &[], Duration::ZERO)
            }
        };
        well &= row.verdict == "caught";
        write_row(&patch.name, row, &patches)?;
    }
    write_page()?;
    Ok(well)
}

/// Tries the catchers in this order until one of them finds something.
fn judge(catchers: &Catchers, order: &[Kind], expected: &str, otherwise: &str) -> Result<Row, String> {
    let mut spent = Vec::new();
    let begun = Instant::now();
    for kind in order {
        let outcome = catchers.catch(*kind, expected)?;
        if let Some(catch) = &outcome.catch {
            return Ok(Row::caught(catch));
        }
        spent.push(outcome.spent);
    }
    Ok(Row::nothing(otherwise, &spent, begun.elapsed()))
}
