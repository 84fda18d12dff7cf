//! `tests/mutants/run`: see there, and `docs/proof/mutants.md`.

use sanlock_mutants::judge::{self, Tests, Verdict};
use sanlock_mutants::mutant::{self, Mutant};
use sanlock_mutants::record::{self, Entry, Figures, OPEN, State, Survivor};
use sanlock_mutants::weave::{self, Woven};
use sanlock_mutants::workshop::{self, BuildError, Workshop};
use sanlock_mutants::{PACKAGES, source, tree};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Processor seconds for all tests of a program that is one mutant.
const PROGRAM_SECONDS: u64 = 120;

fn main() -> ExitCode {
    let (options, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let again = options.iter().any(|option| option == "--survivors");
    let done = match options.iter().find(|option| !["--survivors", "--state"].contains(&option.as_str())) {
        Some(unknown) => Err(format!("no such option: {unknown}")),
        None if options.iter().any(|option| option == "--state") => state(),
        None if paths.is_empty() => Err("name source files or directories, or --state".to_owned()),
        None => known(&paths).and_then(|()| {
            PACKAGES.iter().try_for_each(|(directory, package)| run(directory, package, &paths, again))
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether this file is what the path names, or in it.
fn is_named(file: &str, path: &str) -> bool {
    file == path || file.starts_with(&format!("{}/", path.trim_end_matches('/')))
}

/// Whether each path names something that there are mutants of: a slip would pass for a run in which all were killed.
fn known(paths: &[String]) -> Result<(), String> {
    let mut files = Vec::new();
    for (directory, _) in PACKAGES {
        files.extend(tree::texts(directory).map_err(|e| e.to_string())?.into_keys());
    }
    match paths.iter().find(|path| !files.iter().any(|file| is_named(file, path))) {
        Some(path) => Err(format!("{path}: no source file that is mutated; expected one like {}", files[0])),
        None => Ok(()),
    }
}

/// Prints how the record stands.
fn state() -> Result<(), String> {
    for (directory, package) in PACKAGES {
        let entries = tree::read_record(directory)?;
        let standing = record::check(&entries, &tree::texts(directory).map_err(|e| e.to_string())?);
        for entry in &entries {
            let state = match standing.files.get(&entry.file) {
                Some(State::Fresh) => "",
                Some(State::Stale) => "changed since",
                Some(State::NotRun) => "not run",
                None => "no such file",
            };
            let Figures { mutants, unviable, caught, timeout, .. } = entry.figures.unwrap_or_default();
            let (survivors, file) = (entry.survivors.len(), &entry.file);
            let open = entry.survivors.iter().filter(|survivor| survivor.reason.starts_with(OPEN)).count();
            println!(
                "{file:<40} {mutants:>4} mutants, {unviable:>3} unviable, {caught:>4} caught, {timeout:>3} timeouts, \
                 {survivors:>3} survive ({open} open) {state}"
            );
        }
        let record::Standing { mutants, stale, viable, killed, equivalent, errors, .. } = standing;
        println!(
            "{package}: {killed} of {viable} viable mutants killed, {equivalent} of the others equivalent; {stale} of {mutants} stale or \
             not run"
        );
        for error in errors {
            println!("  {error}");
        }
    }
    Ok(())
}

/// Judges the mutants of the chosen files of one package and writes the record.
fn run(directory: &'static str, package: &'static str, paths: &[String], again: bool) -> Result<(), String> {
    let mut texts = tree::texts(directory).map_err(|e| e.to_string())?;
    let mut entries: BTreeMap<String, Entry> =
        tree::read_record(directory)?.into_iter().map(|entry| (entry.file.clone(), entry)).collect();
    for file in texts.keys() {
        entries.entry(file.clone()).or_insert_with(|| Entry::not_run(file.clone()));
    }
    entries.retain(|file, _| texts.contains_key(file));
    texts.retain(|file, _| paths.iter().any(|path| is_named(file, path)));
    if again {
        texts.retain(|file, _| entries.get(file).is_some_and(|entry| !entry.survivors.is_empty()));
        let changed = |(file, text): &(&String, &String)| {
            entries[*file].figures.is_none_or(|figures| figures.digest != source::digest(text))
        };
        if let Some((file, _)) = texts.iter().find(changed) {
            return Err(format!("{file}: has changed since it was judged: do it without --survivors"));
        }
    }
    if texts.is_empty() {
        return Ok(());
    }
    let workshop = Workshop::new(&tree::root(), directory, package)?;
    let mut mutants = mutant::parse(&workshop.list()?, &texts)?;
    if again {
        mutants.retain(|mutant| entries.get(&mutant.file).is_some_and(|entry| was_survivor(entry, mutant)));
    }
    println!("{package}: {} mutants in {} files", mutants.len(), texts.len());
    // After each file, so that whoever interrupts a long run keeps what it has brought.
    let keep = |file: &str, verdicts: &[Verdict]| {
        let judged: Vec<_> = mutants.iter().zip(verdicts).filter(|(mutant, _)| mutant.file == file).collect();
        let (Some(entry), Some(text)) = (entries.get_mut(file), texts.get(file)) else { return Ok(()) };
        update(entry, text, &judged, again);
        tree::write_record(directory, entries.values()).map_err(|e| e.to_string())
    };
    Batch { workshop, texts: &texts, mutants: &mutants }.run(keep)
}

fn was_survivor(entry: &Entry, mutant: &Mutant) -> bool {
    let same = |s: &Survivor| s.what == mutant.what && s.column == mutant.column && s.line == mutant.line;
    entry.survivors.iter().any(same)
}

/// Puts new verdicts into a file's entry; reasons that were given stay.
fn update(entry: &mut Entry, text: &str, judged: &[(&Mutant, &Verdict)], again: bool) {
    let digest = source::digest(text);
    let count = |verdict: &Verdict| judged.iter().filter(|(_, v)| *v == verdict).count();
    let (unviable, caught, timeout) =
        (count(&Verdict::Unviable), count(&Verdict::Caught), count(&Verdict::Timeout));
    let figures = match entry.figures {
        Some(before) if again => {
            Figures { caught: before.caught + caught, timeout: before.timeout + timeout, ..before }
        }
        _ => Figures { digest, mutants: judged.len(), unviable, caught, timeout },
    };
    let survivors = judged.iter().filter(|(_, verdict)| **verdict == Verdict::Survived).map(|(mutant, _)| {
        let known = entry.survivors.iter().find(|s| s.what == mutant.what && s.line == mutant.line);
        let reason = known.map_or(OPEN.to_owned(), |survivor| survivor.reason.clone());
        Survivor { what: mutant.what.clone(), column: mutant.column, line: mutant.line.clone(), reason }
    });
    entry.survivors = survivors.collect();
    entry.figures = Some(figures);
}

/// Mutants that are built and judged together.
struct Batch<'a> {
    workshop: Workshop,
    texts: &'a HashMap<String, String>,
    mutants: &'a [Mutant],
}

impl Batch<'_> {
    fn run(&self, mut keep: impl FnMut(&str, &[Verdict]) -> Result<(), String>) -> Result<(), String> {
        let mut verdicts = vec![Verdict::Survived; self.mutants.len()];
        let (woven, programs) = self.build(&mut verdicts)?;
        let scratch = tree::root().join("target/mutants").join(self.workshop.name());
        let programs = workshop::set_aside(&programs, &scratch.with_extension("programs"))?;
        let tests = Tests::survey(programs, self.workshop.directory(), &scratch.with_extension("reached"))?;
        println!("{}", tests.describe());
        woven.keys().try_for_each(|file| self.restore(file))?;
        for (file, woven) in &woven {
            println!("{file}: {} mutants in one build, {} alone", woven.woven.len(), woven.single.len());
            self.judge(&tests, &woven.woven, &mut verdicts);
            for &mutant in &woven.single {
                let verdict = self.alone(&self.mutants[mutant - 1])?;
                self.say(mutant, &verdict);
                verdicts[mutant - 1] = verdict;
            }
            keep(file, &verdicts)?;
        }
        Ok(())
    }

    /// Judges woven mutants, given with their functions, two at a time.
    fn judge(&self, tests: &Tests, places: &[(usize, usize)], verdicts: &mut [Verdict]) {
        let shared = Mutex::new(verdicts);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(&(mutant, function)) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let verdict = tests.judge(mutant, function);
                        self.say(mutant, &verdict);
                        if let Ok(mut verdicts) = shared.lock() {
                            verdicts[mutant - 1] = verdict;
                        }
                    }
                });
            }
        });
    }

    fn say(&self, mutant: usize, verdict: &Verdict) {
        let Mutant { file, what, line, .. } = &self.mutants[mutant - 1];
        if *verdict == Verdict::Survived {
            println!("survived: {file}: {what} in `{line}`");
        } else if *verdict == Verdict::Timeout {
            println!("timeout: {file}: {what} in `{line}`");
        }
    }

    fn restore(&self, file: &str) -> Result<(), String> {
        self.workshop.write(file, self.texts.get(file).map_or("", String::as_str))
    }

    /// Weaves and builds until it compiles: mutants that the compiler refuses are unviable, and functions that constants call stay as
    /// they are.
    fn build(
        &self,
        verdicts: &mut [Verdict],
    ) -> Result<(BTreeMap<String, Woven>, Vec<std::path::PathBuf>), String> {
        let mut keep_const = BTreeSet::new();
        loop {
            let mut next_function = 0;
            let mut files = BTreeMap::new();
            for (file, text) in self.texts {
                let numbered = self.mutants.iter().enumerate().map(|(index, mutant)| (index + 1, mutant));
                let of_file: Vec<_> = numbered
                    .filter(|(number, mutant)| {
                        mutant.file == *file && verdicts[number - 1] != Verdict::Unviable
                    })
                    .collect();
                let woven = weave::weave(text, &of_file, &keep_const, &mut next_function);
                self.workshop.write(file, &woven.text)?;
                files.insert(file.clone(), woven);
            }
            self.add_switch()?;
            let errors = match self.workshop.build(false) {
                Ok(programs) => return Ok((files, programs)),
                Err(errors) => errors,
            };
            println!("{} errors of the compiler", errors.len());
            let mut progress = false;
            for error in &errors {
                let mut places = error.places.iter();
                let of_mutant =
                    places.find_map(|(file, line)| files.get(file).and_then(|woven| woven.mutant_at(*line)));
                if error.code == "E0015" {
                    progress |= called(error).is_some_and(|name| keep_const.insert(name));
                } else if let Some(mutant) = of_mutant {
                    progress |=
                        std::mem::replace(&mut verdicts[mutant - 1], Verdict::Unviable) != Verdict::Unviable;
                }
            }
            if !progress {
                let errors: Vec<String> =
                    errors.iter().map(|e| format!("{} {} {:?}", e.code, e.message, e.places)).collect();
                return Err(errors.join("\n"));
            }
        }
    }

    /// The library's root gets the module that chooses.
    fn add_switch(&self) -> Result<(), String> {
        let root = format!("{}/src/lib.rs", self.workshop.name());
        self.workshop.append(&root, weave::SWITCH)
    }

    /// Builds and judges one mutant, the library's own tests first.
    fn alone(&self, mutant: &Mutant) -> Result<Verdict, String> {
        let text = self.texts.get(&mutant.file).map_or("", String::as_str);
        self.workshop.write(&mutant.file, &mutant.apply(text))?;
        let mut verdict = Verdict::Survived;
        for library_only in [true, false] {
            let programs = match self.workshop.build(library_only) {
                Ok(programs) => programs,
                // What the compiler says against it; anything else, as a full disk, says nothing of the mutant.
                Err(errors)
                    if errors.iter().any(|error| !error.code.is_empty() || !error.places.is_empty()) =>
                {
                    verdict = Verdict::Unviable;
                    break;
                }
                Err(errors) => {
                    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
                    return Err(format!("{}: {}", mutant.what, messages.join("\n")));
                }
            };
            for program in programs.iter().skip(usize::from(!library_only)) {
                if verdict == Verdict::Survived {
                    verdict = judge::judge_program(program, &self.workshop.directory(), PROGRAM_SECONDS);
                }
            }
            if verdict != Verdict::Survived {
                break;
            }
        }
        self.restore(&mutant.file)?;
        Ok(verdict)
    }
}

/// The function that a constant can't call: the last name between backticks.
fn called(error: &BuildError) -> Option<String> {
    let path = error.message.split('`').nth(1)?;
    let name = path.rsplit("::").find(|name| !name.contains('<'))?;
    Some(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}
