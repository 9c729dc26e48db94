//! Properties of learners on any data: independence of threads, robustness to unusual data, and helpful errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::num::NonZeroUsize;

use dphe_learn::linear::{FistaParams, Loss, Penalty, Schedule, SgdParams, Stable, objective};
use dphe_learn::metrics::{accuracy, attribute_accuracy};
use dphe_learn::update::{LocalTrainer, Payload, RoundInput};
use dphe_learn::{Dataset, Error, Features, Labels, Real, Seed, Weights};

/// A small random generator for test data, because the crate's own is not public.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0
    }
}

/// Returns samples around one random corner per class.
fn clouds<T: Real>(samples: usize, width: usize, classes: usize, noise: f64) -> Dataset<T> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let corners: Vec<f64> = (0..classes * width).map(|_| numbers.next()).collect();
    let labels: Vec<u32> = (0..samples).map(|i| (i % classes) as u32).collect();
    let values = labels
        .iter()
        .flat_map(|&l| corners[l as usize * width..][..width].to_vec())
        .map(|c| T::from_f64(c + noise * numbers.next()))
        .collect();
    Dataset::new(Features::new(width, values).unwrap(), Labels::classes(classes, labels).unwrap()).unwrap()
}

fn stable<T: Real>(data: &Dataset<T>) -> SgdParams {
    SgdParams::new(Schedule::Stable(Stable::for_features(data.features())))
}

fn train_accuracy<T: Real>(weights: &Weights, data: &Dataset<T>) -> f64 {
    let best = weights.scores(data.features(), NonZeroUsize::MIN).unwrap().best();
    accuracy(data.labels().as_classes("accuracy").unwrap(), &best).unwrap()
}

#[test]
fn every_loss_penalty_and_schedule_learns_separable_classes() {
    // 21 classes make a full panel and a narrow one
    let data = clouds::<f32>(420, 30, 21, 0.4);
    for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Logistic, Loss::Multinomial] {
        for l1_ratio in [0.0, 0.5, 1.0] {
            let penalty = Penalty::elastic_net(1e-3, l1_ratio).unwrap();
            let params = SgdParams { loss, penalty, epochs: 30, ..stable(&data) };
            let weights = params.check().unwrap().fit(&data, &Seed::new(1)).unwrap();
            let share = train_accuracy(&weights, &data);
            assert!(share > 0.95, "{loss:?} {l1_ratio}: {share}");
            assert_eq!(weights.sparsity() > 0.0, l1_ratio > 0.0, "{loss:?} {l1_ratio}");
            let zeros = Weights::zeros(30, 21).unwrap();
            let cost = |w: &Weights| objective(loss, penalty, w, &data, NonZeroUsize::MIN).unwrap();
            assert!(cost(&weights) < cost(&zeros));
        }
    }
}

#[test]
fn results_are_identical_for_any_number_of_threads() {
    let data = clouds::<f32>(200, 17, 40, 1.0);
    for l1_ratio in [0.0, 0.5] {
        let fit = |threads, seed| {
            let penalty = Penalty::elastic_net(1e-3, l1_ratio).unwrap();
            let params = SgdParams { penalty, threads: NonZeroUsize::new(threads).unwrap(), ..stable(&data) };
            params.check().unwrap().fit(&data, &Seed::new(seed)).unwrap()
        };
        assert_eq!(fit(1, 0), fit(2, 0));
        assert_eq!(fit(1, 0), fit(7, 0));
        assert_ne!(fit(1, 0), fit(1, 1));
    }
    let solve = |threads| {
        let penalty = Penalty::elastic_net(0.02, 0.5).unwrap();
        let params = FistaParams {
            penalty,
            iterations: 20,
            grouped: false,
            threads: NonZeroUsize::new(threads).unwrap(),
        };
        params.check().unwrap().fit_from(&Weights::zeros(17, 40).unwrap(), &data).unwrap()
    };
    assert_eq!(solve(1), solve(3));
    let trainer = LocalTrainer::new(stable(&data).check().unwrap(), Payload::Rotating).unwrap();
    let train = |threads| {
        let trainer = trainer.with_threads(NonZeroUsize::new(threads).unwrap()).unwrap();
        let round = RoundInput { global: &Weights::zeros(17, 40).unwrap(), features: &[2, 3, 11] };
        trainer.train(round, &data, &Seed::new(0)).unwrap()
    };
    assert_eq!(train(1), train(3));
}

#[test]
fn single_and_double_precision_agree() {
    let data = clouds::<f64>(300, 25, 8, 0.8);
    let single = data.with_features::<f32>(data.features().convert()).unwrap();
    for l1_ratio in [0.0, 0.5] {
        let params = SgdParams { penalty: Penalty::elastic_net(1e-2, l1_ratio).unwrap(), ..stable(&data) };
        let sgd = params.check().unwrap();
        // eight classes are one panel in both precisions, so both see the same order
        let (a, b) = (sgd.fit(&data, &Seed::new(3)).unwrap(), sgd.fit(&single, &Seed::new(3)).unwrap());
        assert!(a.relative_change(&b).unwrap() < 1e-3);
    }
}

#[test]
fn warm_start_continues_and_keeps_untouched_digits() {
    let data = clouds::<f32>(100, 30, 5, 0.3);
    let none = Penalty::l2(0.0).unwrap();
    let sgd = SgdParams { penalty: none, epochs: 20, ..stable(&data) }.check().unwrap();
    let cost = |w: &Weights| objective(Loss::Hinge, none, w, &data, NonZeroUsize::MIN).unwrap();
    let start = Weights::new(30, vec![0.1; 150], vec![0.2; 5]).unwrap();
    let learnt = sgd.fit_from(&start, &data, &Seed::new(0)).unwrap();
    assert!(cost(&learnt) < cost(&start));
    // with weights ten times as large, every margin exceeds 1, so training changes nothing; the weights must stay
    // equal although they are not exact in f32
    let tenfold = |numbers: &[f64]| numbers.iter().map(|v| v * 10.0 * (1.0 + 1e-12)).collect();
    let far = Weights::new(30, tenfold(learnt.flat()), tenfold(learnt.intercepts())).unwrap();
    assert_eq!(cost(&far), 0.0);
    assert_eq!(sgd.fit_from(&far, &data, &Seed::new(1)).unwrap(), far);
}

#[test]
fn attributes_are_trained_independently() {
    let mut numbers = Numbers(77);
    let values: Vec<f32> = (0..400 * 6).map(|_| numbers.next() as f32).collect();
    let present: Vec<bool> =
        values.chunks(6).flat_map(|x| [x[0] + x[1] > 0.0, x[2] > 0.3, x[3] - x[4] > 0.1]).collect();
    let data =
        Dataset::new(Features::new(6, values).unwrap(), Labels::attributes(3, present).unwrap()).unwrap();
    let sgd = SgdParams { epochs: 20, ..stable(&data) }.check().unwrap();
    let weights = sgd.fit(&data, &Seed::new(0)).unwrap();
    let scores = weights.scores(data.features(), NonZeroUsize::MIN).unwrap();
    assert!(attribute_accuracy(data.labels(), &scores).unwrap() > 0.93);
    let together = SgdParams { loss: Loss::Multinomial, ..stable(&data) }.check().unwrap();
    assert!(matches!(together.fit(&data, &Seed::new(0)), Err(Error::Unsuited { .. })));
}

#[test]
fn single_samples_empty_classes_and_constant_features_are_accepted() {
    // one sample of one class, a class without samples, a constant feature
    let one =
        Dataset::new(Features::new(3, vec![1.0f32, 0.0, 5.0]).unwrap(), Labels::classes(4, vec![2]).unwrap())
            .unwrap();
    for loss in [Loss::Hinge, Loss::Multinomial] {
        let weights = SgdParams { loss, ..stable(&one) }.check().unwrap().fit(&one, &Seed::new(0)).unwrap();
        assert_eq!(weights.scores(one.features(), NonZeroUsize::MIN).unwrap().best(), [2]);
        assert_eq!(weights.block(1), [0.0; 4], "a feature that is zero teaches nothing");
    }
    let params = FistaParams {
        penalty: Penalty::elastic_net(0.01, 0.5).unwrap(),
        iterations: 50,
        grouped: true,
        threads: NonZeroUsize::MIN,
    };
    let weights = params.check().unwrap().fit_from(&Weights::zeros(3, 4).unwrap(), &one).unwrap();
    assert_eq!(weights.scores(one.features(), NonZeroUsize::MIN).unwrap().best(), [2]);
}

#[test]
fn divergence_is_an_error_with_a_remedy() {
    let mut data = clouds::<f32>(50, 4, 3, 0.5);
    let huge = data.features().values().iter().map(|v| v * 1e30).collect();
    data = data.with_features(Features::new(4, huge).unwrap()).unwrap();
    for loss in [Loss::Hinge, Loss::SquaredHinge, Loss::Multinomial] {
        for l1_ratio in [0.0, 0.5] {
            let penalty = Penalty::elastic_net(1e-3, l1_ratio).unwrap();
            let params = SgdParams { loss, penalty, ..SgdParams::new(Schedule::Optimal) };
            let error = params.check().unwrap().fit(&data, &Seed::new(0)).unwrap_err();
            assert!(matches!(error, Error::Diverged { epoch: 1, .. }), "{error:?}");
            assert!(error.to_string().contains("standardise"));
        }
    }
}

#[test]
fn mismatched_shapes_are_refused() {
    let data = clouds::<f32>(20, 4, 3, 0.5);
    let sgd = stable(&data).check().unwrap();
    for start in [Weights::zeros(5, 3).unwrap(), Weights::zeros(4, 2).unwrap()] {
        assert!(matches!(sgd.fit_from(&start, &data, &Seed::new(0)), Err(Error::Shape { .. })));
        assert!(sgd.fit_like_sklearn(&start, &data, &[1, 2, 3]).is_err());
    }
    assert!(sgd.fit_like_sklearn(&Weights::zeros(4, 3).unwrap(), &data, &[1]).is_err());
    assert!(SgdParams { epochs: 0, ..stable(&data) }.check().is_err());
    assert!(SgdParams { schedule: Schedule::Stable(Stable::new(0.0)), ..stable(&data) }.check().is_err());
}
