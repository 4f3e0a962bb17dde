"""The iris data and its split."""

from collections import Counter

from probes.microtrain.iris_experiment.iris import SPECIES, read_iris, split_iris


def test_the_data_is_fishers_150_rows_with_the_two_that_other_copies_have_wrong() -> None:
    rows = read_iris()
    assert len(rows) == 150
    assert Counter(species for _, species in rows) == {0: 50, 1: 50, 2: 50}
    # Rows 35 and 38 as Fisher printed them; UCI's copy differs (its iris.names says so).
    assert rows[34] == ((4.9, 3.1, 1.5, 0.2), SPECIES.index("setosa"))
    assert rows[37] == ((4.9, 3.6, 1.4, 0.1), SPECIES.index("setosa"))


def test_the_features_have_the_published_means() -> None:
    rows = read_iris()
    means = [round(sum(row[0][column] for row in rows) / 150, 3) for column in range(4)]
    assert means == [5.843, 3.057, 3.758, 1.199]


def test_120_rows_train_and_30_are_held_out_ten_of_each_species() -> None:
    split = split_iris(read_iris())
    assert Counter(species for _, species in split.training) == {0: 40, 1: 40, 2: 40}
    assert Counter(species for _, species in split.held_out) == {0: 10, 1: 10, 2: 10}


def test_the_split_is_the_same_every_time() -> None:
    assert split_iris(read_iris()) == split_iris(read_iris())


def test_training_features_span_0_to_1_and_held_out_ones_use_the_same_scale() -> None:
    split = split_iris(read_iris())
    for column in range(4):
        values = [features[column] for features, _ in split.training]
        assert (min(values), max(values)) == (0.0, 1.0)
    assert all(-0.5 < value < 1.5 for features, _ in split.held_out for value in features)
