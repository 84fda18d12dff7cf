//! The form of the scripts.
//!
//! ```text
//! # a comment
//! daemon                      start one, before all commands
//! output only                 do not look at the disk in this script
//! file NAME MIB               make a further file
//! write NAME TEXT             make a file with this text; \n ends a line
//! poke NAME OFFSET HEX        overwrite bytes
//! hold WHO LS RES PATH OFFSET  start a process that holds a resource; <WHO> is its process id from then on
//! end WHO                     end it, and wait until the daemon has noticed
//! until TEXT $ COMMAND        repeat a command until its output contains a text
//! $ COMMAND                   run it: then follow, as recorded,
//! > TEXT                      a line of its output; >! TEXT if it has no end
//! = STATUS                    its exit status, if it is not 0
//! @ OFFSET+LENGTH DIGEST      what it changed on the file `disk`
//! ours: REASON                ours does something else: all of that again, and why
//! ```
//!
//! `DISK` and `DIR` in commands and output stand for the path of the file `disk` and of the directory it is in. A command that
//! begins with `~ ` prints something that varies; only its exit status is compared, and that it prints something or nothing; of one
//! that begins with `- ` the output, but not what it does to the disk.

/// What a command did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Lines of output, changes of the disk and exit status, in the form of the script.
    pub(crate) lines: Vec<String>,
}

/// One line of a script that does something.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Comment(String),
    Daemon,
    OutputOnly,
    File(String, u64),
    Write(String, String),
    Poke(String, u64, Vec<u8>),
    Hold(String, Vec<String>),
    End(String),
    Until(String, String),
    Command {
        line: String,
        expected: Outcome,
        /// Why ours differs, and how.
        ours: Option<(String, Outcome)>,
    },
}

/// Reads a script.
///
/// # Panics
/// On a line that is no step.
pub(crate) fn parse(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let malformed = || -> ! { panic!("not understood: {line}") };
        let number = |text: &str| text.parse().unwrap_or_else(|_| malformed());
        let mut words = rest.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default();
        match word {
            "" | "#" => steps.push(Step::Comment(line.to_owned())),
            "daemon" => steps.push(Step::Daemon),
            "output" if rest == "only" => steps.push(Step::OutputOnly),
            "file" => steps.push(Step::File(next().to_owned(), number(next()))),
            "write" => {
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                steps.push(Step::Write(name.to_owned(), text.to_owned()));
            }
            "poke" => {
                let (name, at, hex) = (next().to_owned(), number(next()), next());
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap_or_else(|_| malformed());
                steps.push(Step::Poke(name, at, (0..hex.len()).step_by(2).map(byte).collect()));
            }
            "hold" => {
                let mut words = rest.split(' ').map(str::to_owned);
                let who = words.next().unwrap_or_default();
                steps.push(Step::Hold(who, words.collect()));
            }
            "end" => steps.push(Step::End(rest.to_owned())),
            "until" => match rest.split_once(" $ ") {
                Some((text, command)) => steps.push(Step::Until(text.to_owned(), command.to_owned())),
                None => malformed(),
            },
            "$" => {
                steps.push(Step::Command { line: rest.to_owned(), expected: Outcome::default(), ours: None })
            }
            ">" | ">!" | "=" | "@" | "ours:" => match (word, steps.last_mut()) {
                ("ours:", Some(Step::Command { ours: ours @ None, .. })) => {
                    *ours = Some((rest.to_owned(), Outcome::default()));
                }
                (_, Some(Step::Command { ours: Some((_, outcome)), .. })) => {
                    outcome.lines.push(line.to_owned())
                }
                (_, Some(Step::Command { expected, .. })) => expected.lines.push(line.to_owned()),
                _ => malformed(),
            },
            _ => malformed(),
        }
    }
    steps
}

/// The script as text again.
pub(crate) fn print(steps: &[Step]) -> String {
    let mut text = String::new();
    let mut add = |line: &str| {
        text.push_str(line.trim_end_matches('\n'));
        text.push('\n');
    };
    for step in steps {
        match step {
            Step::Comment(line) => add(line),
            Step::Daemon => add("daemon"),
            Step::OutputOnly => add("output only"),
            Step::File(name, size) => add(&format!("file {name} {size}")),
            Step::Write(name, text) => add(&format!("write {name} {text}")),
            Step::Poke(name, at, bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                add(&format!("poke {name} {at} {hex}"));
            }
            Step::Hold(who, resources) => add(&format!("hold {who} {}", resources.join(" "))),
            Step::End(who) => add(&format!("end {who}")),
            Step::Until(text, command) => add(&format!("until {text} $ {command}")),
            Step::Command { line, expected, ours } => {
                add(&format!("$ {line}"));
                expected.lines.iter().for_each(|line| add(line));
                if let Some((reason, outcome)) = ours {
                    add(&format!("ours: {reason}"));
                    outcome.lines.iter().for_each(|line| add(line));
                }
            }
        }
    }
    text
}
