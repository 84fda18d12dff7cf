//! What a run did.

use std::collections::BTreeMap;
use std::fmt;

use crate::fair::shares;
use crate::program::Program;

/// Counts of one kind of operation with one result.
type Outcomes = BTreeMap<(String, i32), u64>;

/// What the clients reported.
#[derive(Debug)]
pub struct Report {
    programs: Vec<Program>,
    outcomes: Vec<Outcomes>,
    slowest: Vec<u64>,
    /// Values read that another host had set: (by host index, set on host index).
    handed: BTreeMap<(usize, usize), u64>,
    /// Clients killed by the run itself.
    pub killed: u64,
}

impl Report {
    pub(super) fn new(programs: &[Program]) -> Self {
        Self {
            programs: programs.to_vec(),
            outcomes: vec![Outcomes::new(); programs.len()],
            slowest: vec![0; programs.len()],
            handed: BTreeMap::new(),
            killed: 0,
        }
    }

    /// Adds what a client of a host printed. The last line may be cut.
    pub(super) fn add(&mut self, host: usize, stdout: &str) {
        for line in stdout.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let mut words = line.split_whitespace();
            let (Some(what), Some(code), Some(took)) = (words.next(), words.next(), words.next()) else {
                panic!("a client printed {line:?}");
            };
            let (Ok(code), Ok(took)) = (code.parse::<i32>(), took.parse::<u64>()) else {
                panic!("a client printed {line:?}");
            };
            if let Some(setter) = what.strip_prefix("value-from-host-") {
                let setter = setter.parse::<usize>().unwrap_or_else(|_| panic!("a client printed {line:?}"));
                *self.handed.entry((host, setter - 1)).or_default() += 1;
                continue;
            }
            *self.outcomes[host].entry((what.to_owned(), code)).or_default() += 1;
            if what.starts_with("acquire") {
                self.slowest[host] = self.slowest[host].max(took);
            }
        }
    }

    /// How often an operation whose description begins with `what` had the result `code`, on each host.
    #[must_use]
    pub fn counts(&self, what: &str, code: i32) -> Vec<u64> {
        let of = |outcomes: &Outcomes| {
            let those =
                outcomes.iter().filter(|((words, found), _)| words.starts_with(what) && *found == code);
            those.map(|(_, count)| count).sum()
        };
        self.outcomes.iter().map(of).collect()
    }

    /// Leases granted to each host.
    #[must_use]
    pub fn granted(&self) -> Vec<u64> {
        self.counts("acquire", 0)
    }

    /// Values read, and found right, that another host had set; `across`: only where the hosts are of different programs.
    #[must_use]
    pub fn values_handed(&self, across: bool) -> u64 {
        let counted = |(reader, setter): &(usize, usize)| {
            reader != setter && (!across || self.programs[*reader] != self.programs[*setter])
        };
        self.handed.iter().filter(|(pair, _)| counted(pair)).map(|(_, count)| count).sum()
    }
}

/// What is done, without how: the table is long enough.
fn without_options(words: &str) -> String {
    let kept = words.split('+').filter(|word| !["nowait", "value", "persistent"].contains(word));
    kept.collect::<Vec<_>>().join("+")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<(String, i32), Vec<u64>> = BTreeMap::new();
        for (host, outcomes) in self.outcomes.iter().enumerate() {
            for ((words, code), count) in outcomes {
                let kind = (without_options(words), *code);
                kinds.entry(kind).or_insert_with(|| vec![0; self.outcomes.len()])[host] += count;
            }
        }
        write!(f, "{:<44} {:>6}", "operation", "result")?;
        for program in &self.programs {
            write!(f, " {:>9}", program.word())?;
        }
        for ((what, code), counts) in kinds {
            write!(f, "\n{what:<44} {code:>6}")?;
            for count in counts {
                write!(f, " {count:>9}")?;
            }
        }
        let granted = self.granted();
        write!(f, "\ngranted {granted:?}, in percent of a fair share {:?}", shares(&granted))?;
        write!(f, "\nslowest acquire in ms {:?}, clients killed {}", self.slowest, self.killed)?;
        write!(
            f,
            "\noverlaps 0, unexpected results 0, values handed from host to host {}, from program to program {}",
            self.values_handed(false),
            self.values_handed(true)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_print_is_counted() {
        let mut report = Report::new(&[Program::Ours, Program::Reference]);
        report.add(0, "acquire+shared 0 12\nacquire -243 3\nvalue-from-host-2 0 0\nacqui");
        report.add(1, "acquire 0 99\nacquire+several 0 1\nvalue-from-host-2 0 0\n");
        assert_eq!(report.granted(), [1, 2]);
        assert_eq!(report.counts("acquire", -243), [1, 0]);
        assert_eq!((report.values_handed(false), report.values_handed(true)), (1, 1));
        assert_eq!(shares(&report.granted()), [66, 133]);
        assert!(report.to_string().contains("slowest acquire in ms [12, 99]"), "{report}");
    }
}
