//! Sets of tracepoints.
use crate::pattern::matches;
use crate::points::Point;

/// Words of a set.
pub(crate) const WORDS: usize = 2;
const _: () = assert!(Point::ALL.len() <= 64 * WORDS);

/// A set of tracepoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PointSet(pub(crate) [u64; WORDS]);

impl PointSet {
    /// Nothing.
    pub const EMPTY: PointSet = PointSet([0; WORDS]);

    /// These.
    pub const fn of(points: &[Point]) -> PointSet {
        let mut set = PointSet::EMPTY;
        let mut at = 0;
        while at < points.len() {
            set.0[points[at] as usize / 64] |= 1 << (points[at] as usize % 64);
            at += 1;
        }
        set
    }

    /// Every tracepoint.
    pub fn all() -> PointSet {
        PointSet::of(Point::ALL)
    }

    /// The tracepoints that any of the patterns names: names, in which `*` stands for any characters and `?` for one.
    /// A name of a whole part (`flextoe.protocol`) stands for all below it. Fails with a sentence where a pattern
    /// names none.
    pub fn named<S: AsRef<str>>(patterns: &[S]) -> Result<PointSet, String> {
        let mut set = PointSet::EMPTY;
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let below = format!("{pattern}.*");
            let is_named = |point: &&Point| matches(pattern, point.name()) || matches(&below, point.name());
            let found: PointSet = Point::ALL.iter().filter(is_named).copied().collect();
            if found.is_empty() {
                return Err(format!("no tracepoint is named `{pattern}`: opentoe trace --list shows all"));
            }
            set = set.with(found);
        }
        Ok(set)
    }

    /// The point is in it.
    #[inline(always)]
    pub fn has(&self, point: Point) -> bool {
        self.0[point as usize / 64] >> (point as usize % 64) & 1 == 1
    }

    /// There is nothing in it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Both together.
    pub fn with(self, other: PointSet) -> PointSet {
        PointSet(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// What is not in the other.
    pub fn without(self, other: PointSet) -> PointSet {
        PointSet(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// They have a point in common.
    #[inline(always)]
    pub fn meets(self, other: PointSet) -> bool {
        self.0.iter().zip(other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    /// Its points, in the order of their declaration.
    pub fn iter(self) -> impl Iterator<Item = Point> {
        Point::ALL.iter().copied().filter(move |point| self.has(*point))
    }
}

impl FromIterator<Point> for PointSet {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> PointSet {
        let mut set = PointSet::EMPTY;
        points.into_iter().for_each(|point| set.0[point as usize / 64] |= 1 << (point as usize % 64));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_points_and_whole_parts() {
        let names = |patterns: &[&str]| -> Vec<&str> {
            PointSet::named(patterns).unwrap().iter().map(|point| point.name()).collect()
        };
        assert_eq!(names(&["flextoe.protocol.out_of_order"]), ["flextoe.protocol.out_of_order"]);
        assert_eq!(names(&["flextoe.protocol"]), names(&["flextoe.protocol.*"]));
        assert!(names(&["*"]).len() == Point::ALL.len());
        assert!(names(&["*.dropped"]).len() >= 3);
        let error = PointSet::named(&["*", "flextoe.nothing"]).unwrap_err();
        assert!(error.contains("`flextoe.nothing`"), "{error}");
    }

    #[test]
    fn sets_are_sets() {
        let some: PointSet = Point::ALL.iter().step_by(3).copied().collect();
        let others = PointSet::all().without(some);
        assert!(!others.meets(some) && others.with(some) == PointSet::all() && some.meets(PointSet::all()));
        assert_eq!(some.iter().count() + others.iter().count(), Point::ALL.len());
    }
}
