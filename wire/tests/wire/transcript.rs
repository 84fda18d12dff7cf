//! Reads the recorded transcripts (`golden/README.md` describes the format).

use std::fs;
use std::path::{Path, PathBuf};

/// Who sent the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToDaemon,
    ToClient,
}

/// One `send` or `recv` call that moved bytes.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) connection: u32,
    pub(crate) direction: Direction,
    pub(crate) bytes: Vec<u8>,
}

/// One file.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    /// Folder and file, for example `385/26-acquire-multi.txt`.
    pub(crate) name: String,
    pub(crate) events: Vec<Event>,
}

impl Transcript {
    /// Numbers of the connections, ascending.
    pub(crate) fn connections(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.events.iter().map(|e| e.connection).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Everything sent on a connection in one direction.
    pub(crate) fn stream(&self, connection: u32, direction: Direction) -> Vec<u8> {
        self.events
            .iter()
            .filter(|e| e.connection == connection && e.direction == direction)
            .flat_map(|e| e.bytes.clone())
            .collect()
    }
}

fn golden() -> PathBuf {
    // Tests of other packages read them, too.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|dir| dir.join("wire/tests/golden")).find(|dir| dir.is_dir()).unwrap()
}

/// All transcripts, in the order of their names.
pub(crate) fn all() -> Vec<Transcript> {
    in_folders(&["385", "cross", "511"])
}

fn in_folders(folders: &[&str]) -> Vec<Transcript> {
    let mut names = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(golden().join(folder)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            names.push(format!("{folder}/{file}"));
        }
    }
    names.sort();
    names.iter().map(|name| load(name)).collect()
}

/// One transcript by the beginning of its name, for example `385/26`.
pub(crate) fn load(name: &str) -> Transcript {
    let (folder, prefix) = name.split_once('/').unwrap();
    let file = fs::read_dir(golden().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .unwrap_or_else(|| panic!("no transcript {name}"));
    parse(name, &fs::read_to_string(file).unwrap())
}

fn parse(name: &str, text: &str) -> Transcript {
    let mut events = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let direction = match words.get(2) {
            Some(&"C>D") if words[0] == "conn" => Direction::ToDaemon,
            Some(&"D>C") if words[0] == "conn" => Direction::ToClient,
            _ => continue,
        };
        let mut dump = Vec::new();
        while let Some(data) = lines.next_if(|next| next.starts_with("  ")) {
            dump.push(data.trim_start());
        }
        let bytes = undump(&dump);
        let equals = words.iter().position(|word| *word == "=").unwrap();
        let moved: i64 = words[equals + 1].parse().unwrap();
        assert_eq!(bytes.len(), usize::try_from(moved).unwrap_or(0), "{name}: {line}");
        if !bytes.is_empty() {
            events.push(Event { connection: words[1].parse().unwrap(), direction, bytes });
        }
    }
    Transcript { name: name.to_owned(), events }
}

/// Rebuilds bytes from a dump: offset and hex a line, `*` for repetition, the length at the end.
fn undump(lines: &[&str]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut repeat = false;
    for line in lines {
        if line.starts_with(';') {
            continue;
        }
        if *line == "*" {
            repeat = true;
            continue;
        }
        let offset = usize::from_str_radix(&line[..8], 16).unwrap();
        if repeat {
            let last = bytes[bytes.len() - 16..].to_vec();
            while bytes.len() < offset {
                bytes.extend_from_slice(&last);
            }
            repeat = false;
        }
        assert_eq!(bytes.len(), offset);
        let hex = line[8..].split('|').next().unwrap();
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}
