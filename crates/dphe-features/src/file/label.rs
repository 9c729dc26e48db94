//! Turns the labels of files, which are numbers or names, into classes numbered from 0.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use super::npy::Npy;
use crate::{Error, TableLabels};

/// Reads labels from an array with one number or name per sample, or from samples x attributes of 0 and 1.
pub(super) fn from_array<R: Read>(
    array: Npy<R>,
    classes: Option<Vec<String>>,
) -> Result<(TableLabels, Vec<String>), Error> {
    match *array.shape() {
        [_] | [_, 1] if array.is_text() => from_names(&array.texts()?, classes),
        [_] | [_, 1] => from_numbers(array.integers()?, classes),
        [_, columns] if columns == 0 || columns > super::MOST_CLASSES => Err(Error::table(
            format!("the labels have {columns} columns"),
            "Use between 1 and 65,536 attributes.",
        )),
        [_, columns] => {
            let values = array.integers()?;
            if let Some(at) = values.iter().position(|value| !matches!(value, 0 | 1)) {
                return Err(Error::table(
                    format!("attribute {} of sample {} is {}", at % columns, at / columns, values[at]),
                    "Use 0 and 1 for attributes, or one number per sample for classes.",
                ));
            }
            let names = classes.unwrap_or_else(|| (0..columns).map(|i| i.to_string()).collect());
            Ok((TableLabels::Attributes(values.iter().map(|&value| value == 1).collect()), names))
        }
        ref shape => Err(Error::table(
            format!("the labels have the shape {shape:?}"),
            "Use one label per sample, or samples x attributes of 0 and 1.",
        )),
    }
}

/// Turns numbers into classes. Without names, numbers from 0 keep their meaning even if some do not occur, so that
/// the files of several users agree. Other numbers, such as -1 and 1, are sorted and renumbered.
pub(super) fn from_numbers(
    numbers: Vec<i64>,
    classes: Option<Vec<String>>,
) -> Result<(TableLabels, Vec<String>), Error> {
    let most = classes.as_ref().map_or(super::MOST_CLASSES, Vec::len);
    let direct: Option<Vec<usize>> =
        numbers.iter().map(|&number| usize::try_from(number).ok().filter(|&n| n < most)).collect();
    match (direct, classes) {
        (Some(labels), Some(classes)) => Ok((TableLabels::Classes(labels), classes)),
        (Some(labels), None) => {
            let count = labels.iter().max().map_or(0, |max| max + 1);
            Ok((TableLabels::Classes(labels), (0..count).map(|i| i.to_string()).collect()))
        }
        (None, Some(classes)) => {
            let wrong = numbers.iter().find(|&&n| usize::try_from(n).map_or(true, |n| n >= classes.len()));
            Err(Error::table(
                format!(
                    "label {} names no class, because there are {} (numbered from 0)",
                    wrong.copied().unwrap_or_default(),
                    classes.len()
                ),
                "Use the list of classes that the labels were made with.",
            ))
        }
        (None, None) => {
            let mut order: BTreeMap<i64, usize> = numbers.iter().map(|&number| (number, 0)).collect();
            check_class_count(order.len())?;
            order.values_mut().enumerate().for_each(|(position, class)| *class = position);
            let labels = numbers.iter().map(|number| order[number]).collect();
            Ok((TableLabels::Classes(labels), order.keys().map(i64::to_string).collect()))
        }
    }
}

/// Turns names into classes. Names that are all whole numbers count as numbers; others are sorted alphabetically.
pub(super) fn from_names(
    names: &[String],
    classes: Option<Vec<String>>,
) -> Result<(TableLabels, Vec<String>), Error> {
    let mut interned = Names::default();
    for name in names {
        interned.push(name)?;
    }
    interned.labels(classes)
}

/// The label names of samples, each stored once.
#[derive(Default)]
pub(crate) struct Names {
    numbers: HashMap<String, usize>,
    samples: Vec<usize>,
}

impl Names {
    pub(crate) fn push(&mut self, name: &str) -> Result<(), Error> {
        if name.is_empty() {
            return Err(Error::table(
                format!("sample {} has no label", self.samples.len()),
                "Give every sample a label, or none of them.",
            ));
        }
        let next = self.numbers.len();
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                check_class_count(next + 1)?;
                self.numbers.insert(name.to_owned(), next);
                next
            }
        };
        self.samples.push(number);
        Ok(())
    }

    pub(crate) fn labels(self, classes: Option<Vec<String>>) -> Result<(TableLabels, Vec<String>), Error> {
        let mut names = vec![String::new(); self.numbers.len()];
        for (name, number) in self.numbers {
            names[number] = name;
        }
        let whole = |name: &String| {
            let value: f64 = name.trim().parse().ok()?;
            (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64)
        };
        // a list of class names takes precedence over names that look like numbers
        let known = classes.as_ref().is_some_and(|classes| names.iter().all(|name| classes.contains(name)));
        if !known && let Some(values) = names.iter().map(whole).collect::<Option<Vec<i64>>>() {
            return from_numbers(self.samples.iter().map(|&number| values[number]).collect(), classes);
        }
        let classes = classes.unwrap_or_else(|| {
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted
        });
        let places: HashMap<&str, usize> =
            classes.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
        let order: Vec<usize> = names
            .iter()
            .map(|name| {
                places.get(name.as_str()).copied().ok_or_else(|| {
                    Error::table(
                        format!("the class {name:?} is not in the list of classes"),
                        "Add it to the list.",
                    )
                })
            })
            .collect::<Result<_, _>>()?;
        Ok((TableLabels::Classes(self.samples.iter().map(|&number| order[number]).collect()), classes))
    }
}

fn check_class_count(count: usize) -> Result<(), Error> {
    if count <= super::MOST_CLASSES {
        return Ok(());
    }
    Err(Error::table(
        format!("there are more than {} different labels", super::MOST_CLASSES),
        "Choose another label column, because this one does not hold classes.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(labels: &[usize], names: &[&str]) -> (TableLabels, Vec<String>) {
        (TableLabels::Classes(labels.to_vec()), names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn numbers_from_zero_are_kept_and_others_are_renumbered() {
        assert_eq!(from_numbers(vec![2, 0], None).unwrap(), classes(&[2, 0], &["0", "1", "2"]));
        assert_eq!(from_numbers(vec![1, -1, 1], None).unwrap(), classes(&[1, 0, 1], &["-1", "1"]));
        assert!(from_numbers(vec![2], Some(vec!["a".into(), "b".into()])).is_err());
        assert!(from_numbers(vec![-1], Some(vec!["a".into()])).is_err());
    }

    #[test]
    fn names_are_sorted_or_looked_up_in_the_class_list() {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(from_names(&strings(&["b", "a", "b"]), None).unwrap(), classes(&[1, 0, 1], &["a", "b"]));
        assert_eq!(from_names(&strings(&["1.0", "0"]), None).unwrap(), classes(&[1, 0], &["0", "1"]));
        let given = Some(strings(&["z", "b"]));
        assert_eq!(from_names(&strings(&["b"]), given.clone()).unwrap(), classes(&[1], &["z", "b"]));
        assert!(from_names(&strings(&["a"]), given).is_err());
        assert_eq!(
            from_names(&strings(&["7"]), Some(strings(&["5", "7"]))).unwrap(),
            classes(&[1], &["5", "7"])
        );
        assert!(from_names(&strings(&["a", ""]), None).is_err());
    }
}
