//! A real terminal: a shell in tmux, whose screen can be read and which keys can be typed into.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::bounded::{self, CLIENT_LIMIT};
use crate::host::Host;
use crate::program::{build_dir, missing};
use crate::storage::scratch_dir;

/// How long a screen may take to show what is waited for.
const SHOW_LIMIT: Duration = Duration::from_secs(30);
/// The shell's prompt: nothing that a program shows.
const PROMPT: &str = "READY>";

/// A terminal of 80 by 24 with a shell, in a tmux of its own that ends with it.
#[derive(Debug)]
pub struct Terminal {
    dir: TempDir,
}

impl Terminal {
    /// Opens it for a host: `sanlock` is our command, and asks the host's daemon. `None`, with a message, without tmux.
    ///
    /// # Panics
    /// When tmux or the shell does not start, and under `CI` when there is no tmux.
    #[must_use]
    pub fn open(host: &Host, variables: &[(&str, &str)]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            let _ = missing("tmux");
            return None;
        }
        let terminal = Self { dir: scratch_dir("tmux") };
        let path = format!("{}:{}", build_dir().display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = vec![
            "env".to_owned(),
            "-u".to_owned(),
            "NO_COLOR".to_owned(),
            format!("PATH={path}"),
            format!("SANLOCK_RUN_DIR={}", host.run_dir().display()),
            format!("PS1={PROMPT}"),
            "LC_ALL=C.UTF-8".to_owned(),
        ];
        shell.extend(variables.iter().map(|(name, value)| format!("{name}={value}")));
        shell.push("sh".to_owned());
        let mut args = vec!["new-session", "-d", "-x", "80", "-y", "24", "--"];
        args.extend(shell.iter().map(String::as_str));
        terminal.tmux(&args);
        terminal.wait_for(PROMPT);
        Some(terminal)
    }

    /// A file name for the shell's commands, in a directory that ends with the terminal.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        // Without anybody's settings, and in UTF-8 whatever the locale of the tests.
        command.arg("-u").arg("-f").arg("/dev/null").arg("-S").arg(self.dir.path().join("socket")).args(args);
        bounded::run(command, CLIENT_LIMIT).success().stdout
    }

    /// Types a line.
    pub fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
        self.key("Enter");
    }

    /// Presses a key, as tmux names it.
    pub fn key(&self, name: &str) {
        self.tmux(&["send-keys", "--", name]);
    }

    /// The terminal goes, as when the connection to it is lost.
    pub fn close(&self) {
        let socket = self.dir.path().join("socket");
        // Ends the shell and what it runs; a server that has ended by itself is as good.
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }

    /// Gives it another size.
    pub fn resize(&self, width: u16, height: u16) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// What is on the screen.
    #[must_use]
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// What is on the screen and what has left it at the top, lines joined that the width has broken.
    #[must_use]
    pub fn everything(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    /// The screen with the sequences that colour it.
    #[must_use]
    pub fn colours(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen has these words, and gives it.
    ///
    /// # Panics
    /// It has not in time; shows what it had.
    pub fn wait_for(&self, words: &str) -> String {
        self.wait_until(words, |screen| screen.contains(words))
    }

    /// Waits for a screen.
    ///
    /// # Panics
    /// It has not come in time; shows what there was.
    pub fn wait_until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begin = std::time::Instant::now();
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < SHOW_LIMIT, "no {what} on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close();
    }
}
