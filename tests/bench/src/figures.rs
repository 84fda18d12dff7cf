//! What many repetitions come to.

/// A set of samples, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    sorted: Vec<f64>,
}

impl Figures {
    /// The samples in any order; `None` when there are none.
    #[must_use]
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        (!samples.is_empty()).then_some(Self { sorted: samples })
    }

    /// A single sample.
    #[must_use]
    pub fn one(sample: f64) -> Self {
        Self { sorted: vec![sample] }
    }

    /// How many samples there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The middle one, or the mean of the two in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        let upper = self.sorted.len() / 2;
        if self.sorted.len() % 2 == 1 {
            self.sorted[upper]
        } else {
            f64::midpoint(self.sorted[upper - 1], self.sorted[upper])
        }
    }

    /// The smallest sample that 99 of 100 do not exceed; the largest when there are fewer than 100.
    #[must_use]
    pub fn p99(&self) -> f64 {
        self.sorted[(self.sorted.len() * 99).div_ceil(100) - 1]
    }

    /// The mean of all samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_samples_are_no_figures() {
        assert_eq!(Figures::of(Vec::new()), None);
    }

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(Figures::of(vec![9.0, 1.0, 2.0]).unwrap().median(), 2.0);
        assert_eq!(Figures::of(vec![9.0, 1.0, 2.0, 4.0]).unwrap().median(), 3.0);
        assert_eq!(Figures::one(7.0).median(), 7.0);
    }

    #[test]
    fn the_99th_percentile_is_one_of_the_samples() {
        let hundred = Figures::of((1..=100).map(f64::from).collect()).unwrap();
        assert_eq!(hundred.p99(), 99.0);
        let few = Figures::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(few.p99(), 3.0);
        let many = Figures::of((1..=1000).map(f64::from).collect()).unwrap();
        assert_eq!(many.p99(), 990.0);
    }

    #[test]
    fn the_mean_counts_all() {
        assert_eq!(Figures::of(vec![1.0, 2.0, 6.0]).unwrap().mean(), 3.0);
    }
}
