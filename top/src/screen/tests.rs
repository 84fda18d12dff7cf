//! After a panic the terminal is as before. `tests/conformance/tests/top.rs` has the other ends, in tmux.

use super::*;
use crate::args::Sort;
use std::process::{Command, Stdio};

/// Until the screen is there.
const DRAWN: Duration = Duration::from_millis(500);
/// What takes a terminal and gives it back, as it writes it.
const ALTERNATE: (&str, &str) = ("\x1b[?1049h", "\x1b[?1049l");
const CURSOR_SHOWN: &str = "\x1b[?25h";

#[test]
#[ignore = "panics on the terminal that the test below gives it"]
fn a_panic_where_the_daemon_is_asked() {
    let sampler = Sampler::asking(Duration::from_secs(1), || {
        std::thread::sleep(DRAWN);
        panic!("a fault of the asking thread")
    });
    let look = Look { colours: true, unicode: true };
    // It ends by the panic, at once; the daemon that is not asked is no reason to end.
    let _ = run(App::new(None, Sort::Name, 1), look, &sampler);
}

#[test]
#[ignore = "panics on the terminal that the test below gives it"]
fn a_panic_where_it_draws() {
    end_with_a_panic();
    let mut screen = Screen::take().unwrap();
    screen.terminal.draw(|_| panic!("a fault of the drawing thread")).unwrap();
}

/// Runs a test of this program on a terminal of its own, and returns everything that the terminal was sent.
fn on_a_terminal(test: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let line = format!(
        "stty rows 24 cols 80; before=$(stty -g); timeout --foreground 60 '{}' --exact screen::tests::{test} --ignored --nocapture; \
         echo ended=$?; [ \"$before\" = \"$(stty -g)\" ] && echo restored",
        program.display()
    );
    let mut script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        // Open to the end: nobody types anything.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let keys = script.stdin.take();
    let output = script.wait_with_output().unwrap();
    drop(keys);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_panic_in_any_thread_ends_it_and_gives_the_terminal_back() {
    for (test, words) in [
        ("a_panic_where_the_daemon_is_asked", "a fault of the asking thread"),
        ("a_panic_where_it_draws", "a fault of the drawing thread"),
    ] {
        let seen = on_a_terminal(test);
        let (_, drawn) = seen.split_once(ALTERNATE.0).unwrap_or_else(|| panic!("{test}: {seen:?}"));
        let (_, after) = drawn.split_once(ALTERNATE.1).unwrap_or_else(|| panic!("{test}: {seen:?}"));
        for part in [CURSOR_SHOWN, words, &format!("ended={PANICKED}"), "restored"] {
            assert!(after.contains(part), "{test}: no {part:?} after the screen: {seen:?}");
        }
        assert!(!after.contains(ALTERNATE.0), "{test}: {seen:?}");
    }
}
