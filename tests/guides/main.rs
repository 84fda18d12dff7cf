//! The guides (`docs/guide`, README) say what is so: every command line in them is one that the programs know, every link leads
//! somewhere, and what two hosts are told to do is done, with the result that is shown.
//!
//! A block ```` ```sh host1 ```` is run by the shell of the first host, `host2` likewise; `refused` has to fail; `again` may be run again until it
//! succeeds and shows what it should; `loop` needs root and loop devices. A block ```` ```text seen ```` has lines that the block before it prints:
//! digits may be others, but for the result that follows `done`, and paths `/home/you` are the directory of the test.
//! `<!-- tested with another path in place of: PATH -->`: PATH becomes a loop device or a file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod blocks;
mod hosts;

use blocks::{Block, anchors, blocks, commands, links};
use hosts::{Hosts, skipped};
use sanlock_manual::help::{self, Entry};
use sanlock_manual::{page, repository, stdout_of};
use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a block `again` is asked again.
const PATIENCE: Duration = Duration::from_secs(60);
const SANLOCK: &str = env!("CARGO_BIN_EXE_sanlock");

/// Markdown files below a directory of the repository.
fn pages_in(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![repository(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

fn guides() -> Vec<PathBuf> {
    let mut pages = pages_in("docs/guide");
    pages.push(repository("README.md"));
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// What is wrong with a command line of `sanlock`, by the help text.
fn wrong(words: &[String], entries: &[Entry]) -> Option<String> {
    let named = |name: &str| entries.iter().find(|entry| entry.name == name);
    let first = words.get(1).map_or("help", String::as_str);
    let (entry, rest) = match first {
        "client" | "direct" => {
            let action = words.get(2).map_or("", String::as_str);
            (named(&format!("{first} {action}")), 3)
        }
        _ => (named(first).or_else(|| named(&format!("client {first}"))), 2),
    };
    let Some(entry) = entry else { return Some("no such action".to_owned()) };
    let flags = entry.flags();
    for word in words.iter().skip(rest) {
        if word.starts_with('-') && !word[1..].starts_with(|c: char| c.is_ascii_digit()) && word.len() > 1 {
            if word != "-h" && word != "--help" && !flags.contains(word) {
                return Some(format!("{word} is no option of {}", entry.name));
            }
            if word == "-c" {
                break;
            }
        }
    }
    None
}

#[test]
fn every_command_line_is_one_that_the_programs_know() {
    let entries = help::sanlock(&stdout_of(SANLOCK, &["help"]));
    // `wdmd/tests/manual.rs` shows that these are those of its help.
    let manual = read_to_string(repository("man/wdmd.8")).unwrap();
    let of_wdmd: BTreeSet<String> = page::items(&manual).into_iter().flat_map(|item| item.flags).collect();
    let (mut seen, mut complaints) = (0, Vec::new());
    for path in guides() {
        let text = read_to_string(&path).unwrap();
        for block in blocks(&text).into_iter().filter(Block::is_shell) {
            for words in commands(&block, &["sanlock", "wdmd"]) {
                seen += 1;
                let wrong = if words[0].ends_with("wdmd") {
                    let unknown = |word: &&String| word.starts_with('-') && !of_wdmd.contains(*word);
                    words.iter().find(unknown).map(|word| format!("{word} is no option of wdmd"))
                } else {
                    wrong(&words, &entries)
                };
                if let Some(wrong) = wrong {
                    complaints.push(format!(
                        "{}:{}: {}: {wrong}",
                        path.display(),
                        block.line,
                        words.join(" ")
                    ));
                }
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(seen > 80, "the pages were not understood: {seen} commands");
    let bad = |line: &str| wrong(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), &entries);
    for line in
        ["sanlock acquier", "sanlock client gets -z 1", "sanlock check --second 3", "sanlock direct status"]
    {
        assert!(bad(line).is_some(), "{line}");
    }
}

/// A client action reads its arguments before it looks for a daemon: what it can't read is said before that.
#[test]
fn the_arguments_of_client_actions_can_be_read() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut seen = 0;
    for path in guides() {
        for block in blocks(&read_to_string(&path).unwrap()).into_iter().filter(Block::is_shell) {
            for words in commands(&block, &["sanlock"]) {
                let action = words.get(1).map_or("", String::as_str) == "client";
                // A placeholder, or a variable of the shell: nothing that a program could read.
                let line = words.join(" ");
                let placeholder = |c: char| c == '…' || c == '[' || c == '$';
                if !action || line.contains(placeholder) || line.contains("HOST_ID") || line.contains(" PID")
                {
                    continue;
                }
                seen += 1;
                let output = Command::new(SANLOCK)
                    .args(line.split(' ').skip(1))
                    .env("SANLOCK_RUN_DIR", dir.path())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(said.contains("no daemon socket"), "{}: {line}: {said}", path.display());
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages = pages_in("docs");
    pages.extend(pages_in("man"));
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        pages.push(repository(name));
    }
    let (mut seen, mut complaints) = (0, Vec::new());
    for path in pages {
        let text = read_to_string(&path).unwrap();
        for link in links(&text) {
            seen += 1;
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let good = target.exists()
                && (anchor.is_empty()
                    || anchors(&read_to_string(&target).unwrap()).iter().any(|a| a == anchor));
            if !good {
                complaints.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    assert!(seen > 100, "{seen}");
}

#[test]
fn the_index_has_every_page() {
    let index = read_to_string(repository("docs/guide/README.md")).unwrap();
    let linked: BTreeSet<String> = links(&index).into_iter().collect();
    for path in pages_in("docs/guide") {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || linked.contains(name), "docs/guide/README.md has no link to {name}");
    }
}

/// Text with every number as one `N`, but for those that follow `done`: they are results.
fn without_numbers(text: &str) -> String {
    let (mut out, mut result) = (String::new(), false);
    for c in text.chars() {
        result =
            c.is_ascii_digit() && (result || ["done ", "done -"].iter().any(|before| out.ends_with(before)));
        if result || !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('N') {
            out.push('N');
        }
    }
    out
}

#[test]
fn only_results_are_compared_with_their_numbers() {
    assert_eq!(
        without_numbers("in 12 s, acquire done -243\ninit done 0"),
        "in N s, acquire done -243\ninit done 0"
    );
}

/// Does what a page tells two hosts to do.
fn play(name: &str) {
    let text = read_to_string(repository(&format!("docs/guide/{name}"))).unwrap();
    let marker = "<!-- tested with another path in place of: ";
    let path = text.split(marker).nth(1).and_then(|rest| rest.split(" -->").next());
    let mut hosts = Hosts::start(SANLOCK, path.is_some());
    let device = path.map(|path| {
        // A file where a page has one, so that its own commands make it.
        let in_place = if path.starts_with("/dev") {
            hosts.device()
        } else {
            hosts.work().join("leases").display().to_string()
        };
        (path, in_place)
    });
    let work = hosts.work().display().to_string();
    let concrete = |text: &str| {
        let text = text.replace("/home/you", &work);
        device.as_ref().map_or(text.clone(), |(path, in_place)| text.replace(path, in_place))
    };
    let root = nix::unistd::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    let (mut last, mut last_block, mut run) = (String::new(), None::<(usize, Block)>, 0);
    for block in blocks(&text) {
        let host = if block.is("host1") { 1 } else { 2 };
        if block.is("loop") && !root {
            skipped(&format!("{name}:{} needs root and loop devices", block.line));
            break;
        }
        if block.is("host1") || block.is("host2") {
            let deadline = Instant::now() + PATIENCE;
            let (mut status, mut output) = hosts.run(host, &concrete(&block.text));
            let refused = block.is("refused");
            while block.is("again") && (status != 0) != refused && Instant::now() < deadline {
                std::thread::sleep(Duration::from_secs(1));
                (status, output) = hosts.run(host, &concrete(&block.text));
            }
            assert_eq!(status != 0, refused, "{name}:{}: status {status}\n{output}", block.line);
            (last, last_block) = (output, Some((host, block)));
            run += 1;
        } else if block.is("seen") {
            let missing = |printed: &str| {
                let printed = without_numbers(printed);
                let concrete: Vec<String> = block.text.lines().map(&concrete).collect();
                // Some show the beginning of a line. Behind a lease of `status` there is ADD while it is being acquired.
                let is_there = |line: &str| {
                    let lease = line.starts_with("r ");
                    printed.lines().any(|found| if lease { found == line } else { found.contains(line) })
                };
                concrete.into_iter().find(|line| !is_there(&without_numbers(line)))
            };
            let deadline = Instant::now() + PATIENCE;
            while let Some(line) = missing(&last) {
                let again =
                    last_block.as_ref().filter(|(_, before)| before.is("again") && Instant::now() < deadline);
                let Some((host, before)) = again else {
                    panic!("{name}:{}: {line}\nis not in\n{last}", block.line)
                };
                std::thread::sleep(Duration::from_secs(1));
                last = hosts.run(*host, &concrete(&before.text)).1;
            }
        }
    }
    assert!(run >= 5, "{name}: {run} blocks");
}

#[test]
fn the_first_steps_can_be_gone() {
    play("first-steps.md");
}

#[test]
fn the_first_lockspace_on_a_volume() {
    play("lvm.md");
}

#[test]
fn the_first_lockspace_on_nfs() {
    play("nfs.md");
}

#[test]
fn the_first_lockspace_on_iscsi() {
    play("iscsi.md");
}
