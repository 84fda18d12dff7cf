//! The terminal: taken when the program begins to draw, given back however it ends.

use crate::app::{App, Reaction};
use crate::draw::{self, Look};
use crate::sampler::Sampler;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, Stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Answers and signals are looked for so often; keys wake at once.
const TICK: Duration = Duration::from_millis(200);

/// The terminal while it is ours.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        let entered = execute!(io::stdout(), EnterAlternateScreen)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        entered.map(|terminal| Self { terminal }).inspect_err(|_| give_back())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// As it was before. Where the terminal has gone there is nothing to give back to.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// Exit status after a panic, as the standard library has it.
const PANICKED: i32 = 101;

/// A panic, in whichever thread, ends the program, on the terminal as it was before: its message on a screen that vanishes, on a terminal
/// that echoes nothing, would be lost, and without the thread that asks the screen would show old answers for ever.
fn end_with_a_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        hook(panic);
        std::process::exit(PANICKED);
    }));
}

/// What signals ask for.
struct Signals {
    /// The number of the last one that ends the program, 0 for none.
    end: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    /// Another program may have used the terminal meanwhile.
    continued: Arc<AtomicBool>,
}

impl Signals {
    fn watch() -> io::Result<Self> {
        let signals = Self { end: Arc::default(), stop: Arc::default(), continued: Arc::default() };
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            let number = usize::try_from(signal).unwrap_or(0);
            signal_hook::flag::register_usize(signal, Arc::clone(&signals.end), number)?;
        }
        signal_hook::flag::register(SIGTSTP, Arc::clone(&signals.stop))?;
        signal_hook::flag::register(SIGCONT, Arc::clone(&signals.continued))?;
        Ok(signals)
    }

    /// The signal that ends the program, if one came.
    fn end(&self) -> Option<i32> {
        i32::try_from(self.end.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }
}

/// Waits for a key, so long.
///
/// # Errors
/// The terminal has gone: its session, or the connection to it. Asked for keys then, crossterm would look for them for ever.
fn wait_for_key() -> io::Result<()> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::try_from(TICK).unwrap_or(PollTimeout::ZERO)) {
        // A signal: the caller looks what it was.
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    if fds[0].revents().is_some_and(|events| events.intersects(gone)) {
        return Err(io::Error::other("the terminal has gone"));
    }
    Ok(())
}

/// Draws until somebody wants it to end.
///
/// # Errors
/// The terminal cannot be used.
pub(crate) fn run(mut app: App, look: Look, sampler: &Sampler) -> io::Result<()> {
    end_with_a_panic();
    let signals = Signals::watch()?;
    let mut screen = Screen::take()?;
    let mut answered = Instant::now();
    loop {
        while let Some((outcome, date)) = sampler.take() {
            if outcome.is_ok() {
                answered = Instant::now();
            }
            app.heard(outcome, date);
        }
        let passed = answered.elapsed().as_secs();
        screen.terminal.draw(|frame| draw::draw(&app, look, passed, frame.area(), frame.buffer_mut()))?;
        if let Some(signal) = signals.end() {
            drop(screen);
            // Whoever sent it sees that the program ended by it.
            return emulate_default_handler(signal);
        }
        let mut stop = signals.stop.swap(false, Ordering::Relaxed);
        wait_for_key()?;
        if event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match app.key(key, passed) {
                    Reaction::Quit => return Ok(()),
                    Reaction::Suspend => stop = true,
                    Reaction::Refresh => sampler.refresh(),
                    Reaction::Nothing => {}
                },
                // Drawing finds out the size by itself.
                _ => {}
            }
        }
        if stop {
            drop(screen);
            emulate_default_handler(SIGTSTP)?;
            screen = Screen::take()?;
        } else if signals.continued.swap(false, Ordering::Relaxed) {
            enable_raw_mode()?;
            execute!(io::stdout(), EnterAlternateScreen)?;
            screen.terminal.clear()?;
        }
    }
}

#[cfg(test)]
mod tests;
