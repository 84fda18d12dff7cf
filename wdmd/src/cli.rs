//! The command line: GNU getopt rules, unknown options refused (specification 3.1).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The release whose commands and protocol this program stands in for.
pub(crate) const COMPATIBLE_VERSION: &str = "3.8.5";

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print this and exit with 0.
    Print(String),
    /// Print the running daemon's state.
    Dump,
    /// Print the path of a usable device.
    Probe(Options),
    /// Try a device with this timeout.
    TryTimeout { options: Options, timeout: u32, force_fire: bool },
    /// Run the daemon.
    Daemon(Options),
}

/// Settings of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// `-D`: stay in the foreground, debug lines to stderr.
    pub(crate) foreground: bool,
    /// `-H 1`.
    pub(crate) high_priority: bool,
    /// `-G`.
    pub(crate) group: String,
    /// `-S 1`.
    pub(crate) scripts: bool,
    /// `-s`.
    pub(crate) script_dir: PathBuf,
    /// `-k`: seconds, 0 never.
    pub(crate) kill_script_after: u32,
    /// `-w`: a path, a name in sysfs, or the driver's name.
    pub(crate) device: Option<OsString>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            foreground: false,
            high_priority: false,
            group: "sanlock".to_owned(),
            scripts: false,
            script_dir: PathBuf::from("/etc/wdmd.d"),
            kill_script_after: 0,
            device: None,
        }
    }
}

/// Long options and the short ones they stand for.
const LONG: [(&str, u8); 6] = [
    ("help", b'h'),
    ("probe", b'p'),
    ("dump", b'd'),
    ("version", b'V'),
    ("trytimeout", b't'),
    ("forcefire", b'F'),
];

fn takes_value(option: u8) -> bool {
    matches!(option, b'H' | b'G' | b'S' | b's' | b'k' | b'w' | b't')
}

/// Reads the arguments (without the program's name).
///
/// # Errors
///
/// The complaint to print before exiting with 2.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    let mut parser = Parser::default();
    let mut args = args.into_iter();
    while let Some(argument) = args.next() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            break;
        }
        let ended = if let Some(long) = bytes.strip_prefix(b"--") {
            parser.long(long, &mut args)?
        } else if let Some(cluster) = bytes.strip_prefix(b"-").filter(|cluster| !cluster.is_empty()) {
            parser.cluster(cluster, &mut args)?
        } else {
            // As the original, whose packages may pass words.
            None
        };
        if let Some(command) = ended {
            return Ok(command);
        }
    }
    parser.finish()
}

#[derive(Default)]
struct Parser {
    options: Options,
    probe: bool,
    try_timeout: Option<u32>,
    force_fire: bool,
}

impl Parser {
    fn cluster(
        &mut self,
        mut cluster: &[u8],
        args: &mut impl Iterator<Item = OsString>,
    ) -> Result<Option<Command>, String> {
        while let Some((&option, rest)) = cluster.split_first() {
            if takes_value(option) {
                let value =
                    if rest.is_empty() { args.next() } else { Some(OsString::from_vec(rest.to_vec())) };
                let value = value.ok_or_else(|| missing(&shown(&[b'-', option])))?;
                self.value(option, value)?;
                return Ok(None);
            }
            if let Some(command) = self.flag(option)? {
                return Ok(Some(command));
            }
            cluster = rest;
        }
        Ok(None)
    }

    fn long(
        &mut self,
        text: &[u8],
        args: &mut impl Iterator<Item = OsString>,
    ) -> Result<Option<Command>, String> {
        let mut parts = text.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or(&[]);
        let glued = parts.next();
        let dashed = format!("--{}", shown(name));
        let exact = LONG.iter().find(|(long, _)| long.as_bytes() == name);
        let mut abbreviated = LONG.iter().filter(|(long, _)| long.as_bytes().starts_with(name));
        let (_, option) = match (exact, abbreviated.next(), abbreviated.next()) {
            (Some(found), ..) | (None, Some(found), None) => *found,
            (None, Some(_), Some(_)) => return Err(format!("option '{dashed}' is ambiguous")),
            (None, None, _) => return Err(unknown(&dashed)),
        };
        if takes_value(option) {
            let value = glued.map(|value| OsString::from_vec(value.to_vec())).or_else(|| args.next());
            self.value(option, value.ok_or_else(|| missing(&dashed))?)?;
            return Ok(None);
        }
        if glued.is_some() {
            return Err(format!("option '{dashed}' takes no value"));
        }
        self.flag(option)
    }

    /// `-h`, `-V` and `-d` act at once, with the values given so far.
    fn flag(&mut self, option: u8) -> Result<Option<Command>, String> {
        match option {
            b'h' => return Ok(Some(Command::Print(usage(&self.options)))),
            b'V' => return Ok(Some(Command::Print(format!("wdmd version {COMPATIBLE_VERSION}\n")))),
            b'd' => return Ok(Some(Command::Dump)),
            b'p' => self.probe = true,
            b'F' => self.force_fire = true,
            b'D' => self.options.foreground = true,
            other => return Err(unknown(&shown(&[b'-', other]))),
        }
        Ok(None)
    }

    fn value(&mut self, option: u8, value: OsString) -> Result<(), String> {
        let text = || value.to_str().ok_or_else(|| format!("'{}' is not UTF-8", shown(value.as_bytes())));
        match option {
            b'H' => self.options.high_priority = switch("-H", text()?)?,
            b'S' => self.options.scripts = switch("-S", text()?)?,
            b'k' => self.options.kill_script_after = seconds("-k", text()?)?,
            b't' => self.try_timeout = Some(seconds("-t", text()?)?),
            b'G' => self.options.group = text()?.to_owned(),
            b's' => self.options.script_dir = PathBuf::from(value),
            _ => self.options.device = Some(value),
        }
        Ok(())
    }

    fn finish(self) -> Result<Command, String> {
        let Self { options, probe, try_timeout, force_fire } = self;
        match try_timeout {
            Some(timeout) if timeout > 0 => Ok(Command::TryTimeout { options, timeout, force_fire }),
            _ if probe || try_timeout.is_some() => Ok(Command::Probe(options)),
            _ if force_fire => Err(FORCE_FIRE_ALONE.to_owned()),
            _ => Ok(Command::Daemon(options)),
        }
    }
}

/// `-F` without `-t`, in the words of 5.1.1, which exits with 1.
pub(crate) const FORCE_FIRE_ALONE: &str = "Use force fire (-F) with a timeout (-t).";

fn unknown(option: &str) -> String {
    format!("unknown option '{option}'; see wdmd --help")
}

fn missing(option: &str) -> String {
    format!("option '{option}' needs a value; see wdmd --help")
}

fn shown(bytes: &[u8]) -> String {
    sanlock_wdmd::protocol::Escaped(bytes).to_string()
}

fn switch(option: &str, text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("option '{option}' takes 0 or 1, not '{}'", shown(text.as_bytes()))),
    }
}

fn seconds(option: &str, text: &str) -> Result<u32, String> {
    // A device takes a C int.
    let number = text.parse::<u32>().ok().filter(|&number| i32::try_from(number).is_ok());
    number.ok_or_else(|| {
        format!("option '{option}' takes a number of seconds from 0 on, not '{}'", shown(text.as_bytes()))
    })
}

fn usage(options: &Options) -> String {
    let mut text = String::from(
        "Usage:\n\
         wdmd [options]\n\
         \n\
         --version, -V         print version\n\
         --help, -h            print usage\n\
         --dump, -d            print debug from daemon\n\
         --probe, -p           print path of functional watchdog device\n\
         --trytimeout, -t <n>  test whether a watchdog device takes a timeout of n seconds\n\
         --forcefire, -F       with -t: let the device reset this machine\n\
         -D                    debug: no fork and print all logging to stderr\n\
         -H 0|1                use high priority features (1 yes, 0 no, default 0)\n",
    );
    let Options { group, scripts, script_dir, kill_script_after, .. } = options;
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "-G <name>             group ownership for the socket (default {group})\n\
         -S 0|1                allow script tests (default {})\n\
         -s <path>             path to scripts dir (default {})\n\
         -k <num>              kill unfinished scripts after num seconds (default {kill_script_after})\n\
         -w /dev/watchdog      the watchdog device to use: its path, its name in /sys/class/watchdog,\n\
         \u{20}                     or its driver's name, as in 'i6300ESB timer'\n",
        u8::from(*scripts),
        script_dir.display(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(change: impl FnOnce(&mut Options)) -> Options {
        let mut options = Options::default();
        change(&mut options);
        options
    }

    #[test]
    fn daemon_options_in_every_form() {
        let all = options(|options| {
            *options = Options {
                foreground: true,
                high_priority: true,
                group: "root".into(),
                scripts: true,
                script_dir: "/x".into(),
                kill_script_after: 7,
                device: Some("/dev/watchdog1".into()),
            };
        });
        for line in [
            "-D -H 1 -G root -S 1 -s /x -k 7 -w /dev/watchdog1",
            "-H1 -Groot -DS1 -s/x -k7 -w/dev/watchdog1 word",
            "word -k 3 -k 7 -D -H 1 -G root -S 1 -s /x -w /dev/watchdog1 -- -Z",
        ] {
            assert_eq!(read(line), Ok(Command::Daemon(all.clone())), "{line}");
        }
        assert_eq!(read(""), Ok(Command::Daemon(Options::default())));
    }

    #[test]
    fn commands() {
        let default = Options::default;
        for line in ["-p", "--probe", "--pro", "-t 0", "-p -t 0", "-t 0 -F"] {
            assert_eq!(read(line), Ok(Command::Probe(default())), "{line}");
        }
        for (line, timeout, force_fire) in
            [("-t 30", 30, false), ("--trytimeout=30 -p", 30, false), ("--try 5 --force", 5, true)]
        {
            assert_eq!(
                read(line),
                Ok(Command::TryTimeout { options: default(), timeout, force_fire }),
                "{line}"
            );
        }
        for line in ["-d", "--dump", "--du -Z", "-pd"] {
            assert_eq!(read(line), Ok(Command::Dump), "{line}");
        }
        assert_eq!(read("-V"), Ok(Command::Print("wdmd version 3.8.5\n".into())));
    }

    #[test]
    fn help_shows_the_values_given_before_it() {
        let Ok(Command::Print(text)) = read("-S 1 -k 9 -s /some/dir -G elsewhere -hZ") else { panic!() };
        for part in
            ["(default 1)", "(default 9)", "(default /some/dir)", "(default elsewhere)", "--forcefire"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn refusals_name_what_was_wrong() {
        for (line, part) in [
            ("-Z", "'-Z'"),
            ("-DZ", "'-Z'"),
            ("--no-such", "'--no-such'"),
            ("--", ""),
            ("-k", "'-k' needs a value"),
            ("--trytimeout", "needs a value"),
            ("--help=3", "takes no value"),
            ("-H 2", "0 or 1, not '2'"),
            ("-S yes", "0 or 1"),
            ("-k -1", "not '-1'"),
            ("-k 3x", "not '3x'"),
            ("-t 4294967295", "seconds"),
            ("-F", FORCE_FIRE_ALONE),
        ] {
            match read(line) {
                Err(text) => assert!(text.contains(part), "{line}: {text}"),
                Ok(command) => assert_eq!((line, command), ("--", Command::Daemon(Options::default()))),
            }
        }
        let odd = parse([OsString::from_vec(b"-\xff\n".to_vec())]).unwrap_err();
        assert!(odd.contains(r"'-\xff'"), "{odd}");
    }
}
