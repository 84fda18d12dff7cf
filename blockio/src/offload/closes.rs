//! Which descriptors wait to be closed, and which of them may be now.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::{CLOSERS_FOR_PATHS, CLOSERS_OF_A_PATH};
use crate::stat::Device;

/// Where a descriptor leads, as far as one close that hangs makes others suspect. After another mount at the same path it is another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: Arc<Path>,
    pub(crate) device: Device,
}

/// Dropped once a descriptor is closed: whoever has the other end hears of it.
pub(crate) type Told = Sender<()>;

/// A descriptor to be closed.
pub(super) struct Closing {
    pub(super) place: Place,
    pub(super) fd: OwnedFd,
    pub(super) told: Vec<Told>,
}

/// Descriptors of one place.
struct Queue {
    place: Place,
    fds: VecDeque<(OwnedFd, Vec<Told>)>,
}

/// See [`super`].
pub(super) struct Closes {
    /// None is empty.
    waiting: VecDeque<Queue>,
    /// Closes under way.
    under_way: Vec<Place>,
}

impl Closes {
    pub(super) const fn new() -> Self {
        Self { waiting: VecDeque::new(), under_way: Vec::new() }
    }

    pub(super) fn add(&mut self, place: Place, fd: OwnedFd, told: Vec<Told>) {
        match self.waiting.iter_mut().find(|queue| queue.place == place) {
            Some(queue) => queue.fds.push_back((fd, told)),
            None => self.waiting.push_back(Queue { place, fds: VecDeque::from([(fd, told)]) }),
        }
    }

    /// Closes of this path that may begin.
    fn room(&self, place: &Place) -> usize {
        let under_way = |is: &dyn Fn(&Place) -> bool| self.under_way.iter().filter(|other| is(other)).count();
        if self.under_way.len() < CLOSERS_FOR_PATHS {
            CLOSERS_OF_A_PATH.saturating_sub(under_way(&|other| other == place))
        } else {
            1_usize.saturating_sub(under_way(&|other| other.device == place.device))
        }
    }

    /// Closes that could begin, as far as each path is concerned.
    pub(super) fn ready(&self) -> usize {
        self.waiting.iter().map(|queue| self.room(&queue.place).min(queue.fds.len())).sum()
    }

    /// Begins a close. Paths take turns.
    pub(super) fn next(&mut self) -> Option<Closing> {
        let at = self.waiting.iter().position(|queue| self.room(&queue.place) > 0)?;
        let mut queue = self.waiting.remove(at)?;
        let (fd, told) = queue.fds.pop_front()?;
        let place = queue.place.clone();
        if !queue.fds.is_empty() {
            self.waiting.push_back(queue);
        }
        self.under_way.push(place.clone());
        Some(Closing { place, fd, told })
    }

    /// Begins one of a descriptor that is not here, if none of that path waits and there are not many.
    pub(super) fn begin_elsewhere(&mut self, place: &Place) -> bool {
        let waits = self.waiting.iter().any(|queue| queue.place == *place);
        let begins = !waits && self.under_way.len() < CLOSERS_FOR_PATHS && self.room(place) > 0;
        if begins {
            self.under_way.push(place.clone());
        }
        begins
    }

    /// A close is over.
    pub(super) fn end(&mut self, place: &Place) {
        if let Some(at) = self.under_way.iter().position(|other| other == place) {
            self.under_way.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, minor: u32) -> Place {
        Place { path: Path::new(path).into(), device: (8, minor) }
    }

    fn fd() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    fn next(closes: &mut Closes) -> Option<String> {
        closes.next().map(|closing| closing.place.path.display().to_string())
    }

    #[test]
    fn a_few_of_each_path_at_a_time_and_paths_take_turns() {
        let mut closes = Closes::new();
        for _ in 0..6 {
            closes.add(place("a", 1), fd(), Vec::new());
        }
        closes.add(place("b", 1), fd(), Vec::new());
        assert_eq!(closes.ready(), CLOSERS_OF_A_PATH + 1);
        for expected in ["a", "b", "a", "a", "a"] {
            assert_eq!(next(&mut closes).as_deref(), Some(expected));
        }
        assert_eq!((closes.ready(), next(&mut closes)), (0, None), "enough are under way");
        closes.add(place("b", 1), fd(), Vec::new());
        assert_eq!(closes.ready(), 1);
        closes.end(&place("a", 1));
        assert_eq!(closes.ready(), 2);
        assert_eq!(next(&mut closes).as_deref(), Some("a"));
        assert_eq!(next(&mut closes).as_deref(), Some("b"));
        closes.end(&place("a", 1));
        assert_eq!(next(&mut closes).as_deref(), Some("a"));
        assert_eq!(next(&mut closes), None);
        assert!(closes.waiting.is_empty());
    }

    #[test]
    fn another_device_at_the_same_path_is_another_place() {
        let mut closes = Closes::new();
        for _ in 0..=CLOSERS_OF_A_PATH {
            closes.add(place("a", 1), fd(), Vec::new());
        }
        while next(&mut closes).is_some() {}
        assert!(closes.begin_elsewhere(&place("a", 2)));
        closes.add(place("a", 2), fd(), Vec::new());
        assert_eq!(closes.next().map(|closing| closing.place), Some(place("a", 2)));
        closes.end(&place("a", 2));
        assert_eq!(next(&mut closes), None, "those of the first one still hang");
    }

    #[test]
    fn with_many_under_way_a_device_gets_no_second_one() {
        let mut closes = Closes::new();
        for n in 0..=CLOSERS_FOR_PATHS {
            closes.add(place(&format!("dead{n}"), 1), fd(), Vec::new());
        }
        for n in 0..CLOSERS_FOR_PATHS {
            assert_eq!(next(&mut closes), Some(format!("dead{n}")));
        }
        assert_eq!((closes.ready(), next(&mut closes)), (0, None));
        for _ in 0..2 {
            closes.add(place("healthy", 2), fd(), Vec::new());
        }
        assert_eq!(closes.ready(), 1);
        assert_eq!(next(&mut closes).as_deref(), Some("healthy"));
        closes.add(place("beside", 2), fd(), Vec::new());
        assert_eq!(next(&mut closes), None);
        closes.end(&place("healthy", 2));
        assert_eq!(next(&mut closes).as_deref(), Some("healthy"));
        closes.end(&place("healthy", 2));
        assert_eq!(next(&mut closes).as_deref(), Some("beside"));
        closes.end(&place("beside", 2));
        closes.end(&place("dead0", 1));
        assert_eq!(next(&mut closes), Some(format!("dead{CLOSERS_FOR_PATHS}")));
    }

    #[test]
    fn closes_elsewhere_count_and_keep_the_order() {
        let mut closes = Closes::new();
        for _ in 0..CLOSERS_OF_A_PATH {
            assert!(closes.begin_elsewhere(&place("a", 1)));
        }
        assert!(!closes.begin_elsewhere(&place("a", 1)));
        assert!(closes.begin_elsewhere(&place("b", 1)), "another path");
        closes.add(place("a", 1), fd(), Vec::new());
        assert_eq!(next(&mut closes), None);
        closes.end(&place("a", 1));
        assert!(!closes.begin_elsewhere(&place("a", 1)), "one waits");
        assert_eq!(next(&mut closes).as_deref(), Some("a"));
        for n in closes.under_way.len()..CLOSERS_FOR_PATHS {
            assert!(closes.begin_elsewhere(&place(&n.to_string(), 1)));
        }
        assert!(!closes.begin_elsewhere(&place("other", 2)), "many are under way");
    }
}
