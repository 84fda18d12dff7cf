//! `docs/compliance/` keeps its word: every section of the specification has rows, every row names code and tests that exist, and
//! every difference is one of those listed in `docs/differences.md`.
//!
//! Whether a test really shows what its row says is for the reader; that it is there, and runs, is checked here.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod sections;

use sections::DOCUMENTS;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// One row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    id: String,
    requirement: String,
    status: String,
    code: Vec<String>,
    tests: Vec<String>,
}

/// The repository's files, read once.
struct Tree(HashMap<String, Option<String>>);

impl Tree {
    fn text(&mut self, path: &str) -> Option<&str> {
        let read = || {
            let inside = Path::new(path).components().all(|c| matches!(c, std::path::Component::Normal(_)));
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
            inside.then(|| std::fs::read_to_string(file).ok()).flatten()
        };
        self.0.entry(path.to_owned()).or_insert_with(read).as_deref()
    }
}

/// The cells of a row of a Markdown table, `None` for every other line.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn references(cell: &str) -> Vec<String> {
    cell.split("<br>")
        .map(|part| part.trim().trim_matches('`').to_owned())
        .filter(|r| !r.is_empty())
        .collect()
}

/// The rows of a file with the section each stands in, and what is wrong with its form.
fn rows(text: &str) -> (Vec<(String, Row)>, Vec<String>) {
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    let mut section = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.split_whitespace().next().unwrap_or_default().to_owned();
        }
        match cells(line).as_deref() {
            None if line.starts_with('|') => wrong.push(format!("{line}: a row that does not end")),
            None | Some(["Id", ..]) => {}
            Some([first, ..]) if first.starts_with("---") => {}
            Some([id, requirement, status, code, tests]) => rows.push((
                section.clone(),
                Row {
                    id: (*id).to_owned(),
                    requirement: (*requirement).to_owned(),
                    status: (*status).to_owned(),
                    code: references(code),
                    tests: references(tests),
                },
            )),
            Some(other) => wrong.push(format!("{line}: {} cells instead of 5", other.len())),
        }
    }
    (rows, wrong)
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether `word` stands at this place and ends there.
fn stands(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_word))
}

/// Whether the file defines an item, a variant or a constant of this name.
fn defines(text: &str, item: &str) -> bool {
    const KINDS: [&str; 9] =
        ["fn ", "struct ", "enum ", "const ", "static ", "trait ", "type ", "mod ", "macro_rules! "];
    text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).any(|line| {
        let named = |kind: &&str| {
            line.match_indices(*kind).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                !before.is_some_and(is_word) && stands(&line[at + kind.len()..], item)
            })
        };
        let variant = line.strip_prefix("pub ").unwrap_or(line);
        KINDS.iter().any(named)
            || stands(variant, item)
                && variant[item.len()..].trim_start().starts_with([',', '(', '{', '=', ':'])
    })
}

/// Whether the file has a test of this name that runs: a function with `#[test]` and without `#[ignore]`, one that a macro makes
/// (`name: …;`, or the name alone), or, in quotes, a scenario.
fn has_test(text: &str, name: &str) -> bool {
    if name.starts_with('"') {
        return text.contains(name);
    }
    let lines: Vec<&str> = text.lines().collect();
    let function = |at: usize| {
        let attributes = lines[..at].iter().rev().map(|line| line.trim());
        let attributes: Vec<&str> =
            attributes.take_while(|line| line.starts_with("#[") || line.starts_with("//")).collect();
        attributes.contains(&"#[test]") && !attributes.iter().any(|line| line.starts_with("#[ignore"))
    };
    let by_macro = text.contains("#[test]\n            fn $name()");
    let listed = text.contains("#[test]\n        fn $name()");
    lines.iter().enumerate().any(|(at, line)| {
        let line = line.trim_start();
        line.strip_prefix("fn ").is_some_and(|rest| stands(rest, name)) && function(at)
            || by_macro && stands(line, name) && line[name.len()..].starts_with(": ")
            || listed && line == name
    })
}

/// What is wrong with the statuses and references of a row.
fn mistakes(row: &Row, tree: &mut Tree, differences: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(format!("{}: {what}", row.id));
    let (kind, reason) = row.status.split_once(':').map_or((row.status.as_str(), ""), |(k, r)| (k, r.trim()));
    let claimed = match (kind, reason) {
        ("done", "") => true,
        ("difference", what) => {
            if !differences.contains(what) {
                say(format!("no row {what:?} in docs/differences.md"));
            }
            true
        }
        ("not claimed" | "no requirement", reason) if !reason.is_empty() => false,
        _ => {
            say(format!("status {:?}", row.status));
            false
        }
    };
    if row.requirement.is_empty() {
        say("no requirement".to_owned());
    }
    if claimed != (!row.code.is_empty() && !row.tests.is_empty()) || !claimed && !row.tests.is_empty() {
        say("code and tests belong to what is done or a difference, and to nothing else".to_owned());
    }
    for (kind, reference) in row.code.iter().map(|r| ("code", r)).chain(row.tests.iter().map(|r| ("test", r)))
    {
        let Some((path, item)) = reference.rsplit_once("::") else {
            say(format!("{kind} {reference} names no item"));
            continue;
        };
        match tree.text(path) {
            None => say(format!("{kind} {reference}: there is no such file")),
            Some(text) if kind == "code" && !defines(text, item) => say(format!("{path} defines no {item}")),
            Some(text) if kind == "test" && !has_test(text, item) => {
                say(format!("{path} has no test {item}"))
            }
            Some(_) => {}
        }
    }
    wrong
}

fn differences(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(cells).map(|row| row[0].to_owned()).collect()
}

/// The number that a row's id has after the section, `a` to `z`, `aa`, …
fn letters(n: usize) -> String {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n).unwrap());
    match n.checked_sub(26) {
        None => letter(n).to_string(),
        Some(rest) => format!("{}{}", letter(rest / 26), letter(rest % 26)),
    }
}

#[test]
fn every_row_holds_what_it_says_and_no_section_is_missing() {
    let mut tree = Tree(HashMap::new());
    let listed = differences(tree.text("docs/differences.md").unwrap());
    let index = tree.text("docs/compliance.md").unwrap().to_owned();
    let (mut wrong, mut ids, mut counts) = (Vec::new(), BTreeSet::new(), HashMap::<String, usize>::new());
    for (prefix, name, sections) in DOCUMENTS {
        if !index.contains(&format!("(compliance/{name}.md)")) {
            wrong.push(format!("docs/compliance.md does not link compliance/{name}.md"));
        }
        let file = format!("docs/compliance/{name}.md");
        let text = tree.text(&file).unwrap_or_else(|| panic!("{file} is missing")).to_owned();
        let (rows, malformed) = rows(&text);
        wrong.extend(malformed);
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (section, row) in &rows {
            let place = seen.entry(section).or_default();
            let expected = format!("{prefix}-{section}{}", letters(*place));
            *place += 1;
            if row.id != expected {
                wrong.push(format!("{}: expected {expected} here", row.id));
            }
            if !ids.insert(row.id.clone()) {
                wrong.push(format!("{} twice", row.id));
            }
            wrong.extend(mistakes(row, &mut tree, &listed));
            let kind = row.status.split(':').next().unwrap_or_default();
            *counts.entry(kind.to_owned()).or_default() += 1;
        }
        for section in sections {
            if !seen.contains_key(section) {
                wrong.push(format!("{file}: section {section} is missing"));
            }
        }
        for section in seen.keys().filter(|section| !sections.contains(section)) {
            wrong.push(format!("{file}: the specification has no section {section}"));
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{} mistakes:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ids.len() > 900, "{} rows", ids.len());
}

#[test]
fn mistakes_are_noticed() {
    let mut tree = Tree(HashMap::new());
    tree.0.insert(
        "x.rs".to_owned(),
        Some(
            "pub fn real() {}\nstruct Real {\n    field: u8,\n}\nenum E {\n    Variant(u8),\n}\n// fn gone() {}\n\
             #[test]\n// Why.\n#[should_panic]\nfn runs() {}\n#[test]\n#[ignore]\nfn rests() {}\nfn helper() {}\n"
                .to_owned(),
        ),
    );
    let listed = differences("| What | Original |\n|---|---|\n| Known | x |\n");
    let mut check = |line: &str| {
        let (rows, wrong) = rows(&format!("## 1 Title\n{line}\n"));
        rows.iter().map(|(_, row)| mistakes(row, &mut tree, &listed).len()).sum::<usize>() + wrong.len()
    };
    for good in [
        "| A | b | done | `x.rs::real` | `x.rs::runs` |",
        "| A | b | done | `x.rs::Real`<br>`x.rs::Variant`<br>`x.rs::field` | `x.rs::runs` |",
        "| A | b | difference: Known | `x.rs::real` | `x.rs::runs` |",
        "| A | b | not claimed: why |  |  |",
        "| A | b | no requirement: why |  |  |",
    ] {
        assert_eq!(check(good), 0, "{good}");
    }
    for bad in [
        "| A | b | done | `x.rs::gone` | `x.rs::runs` |",
        "| A | b | done | `x.rs::rea` | `x.rs::runs` |",
        "| A | b | done | `y.rs::real` | `x.rs::runs` |",
        "| A | b | done | `../x.rs::real` | `x.rs::runs` |",
        "| A | b | done | `x.rs` | `x.rs::runs` |",
        "| A | b | done | `x.rs::real` | `x.rs::rests` |",
        "| A | b | done | `x.rs::real` | `x.rs::helper` |",
        "| A | b | done | `x.rs::real` | `x.rs::run` |",
        "| A | b | done |  | `x.rs::runs` |",
        "| A | b | done | `x.rs::real` |  |",
        "| A | b | done: nearly | `x.rs::real` | `x.rs::runs` |",
        "| A |  | done | `x.rs::real` | `x.rs::runs` |",
        "| A | b | difference: Unknown | `x.rs::real` | `x.rs::runs` |",
        "| A | b | difference | `x.rs::real` | `x.rs::runs` |",
        "| A | b | open |  |  |",
        "| A | b | open: why |  |  |",
        "| A | b | not claimed: why |  | `x.rs::runs` |",
        "| A | b | later |  |  |",
        "| A | b | done | `x.rs::real` | `x.rs::runs` | |",
        "| A | b | done | `x.rs::real` | `x.rs::runs`",
    ] {
        assert_ne!(check(bad), 0, "{bad}");
    }
    assert_eq!([letters(0), letters(25), letters(26), letters(52)], ["a", "z", "aa", "ba"]);
}
