import pytest

from stepe import InputError
from stepe.methods import EVERY_METHOD, Method, StepEPlus, make_method, method_class


def test_every_method_has_a_name_a_summary_and_its_options_as_fields():
    for name, kind in EVERY_METHOD.items():
        assert kind.name == name
        assert kind.summary
        assert isinstance(kind(), Method)
        assert all(hasattr(kind(), option) for option in kind.options())


def test_only_the_oracle_asks_for_clean_labels():
    assert [name for name, kind in EVERY_METHOD.items() if kind.trains_on == "clean"] == ["oracle"]


def test_a_method_is_made_from_its_name_and_options_or_taken_as_it_is():
    made = make_method("step-e", rho_max=0.2, sticky=True)
    assert (made.rho_max, made.sticky) == (0.2, True)
    assert make_method(made) is made


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: make_method("step-e-plus", refien=0.1),
            "'step-e-plus' has no option 'refien'; did you mean refine",
        ),
        (lambda: StepEPlus(refien=0.1), "StepEPlus has no option 'refien'; did you mean refine"),
        (lambda: make_method("step-e-pls"), "margins, prune; did you mean step-e-plus"),
    ],
)
def test_unknown_names_are_told_which_ones_they_resemble(make, told):
    with pytest.raises(InputError) as error:
        make()
    assert told in str(error.value)


def test_unknown_names_and_options_are_refused_with_the_choice():
    with pytest.raises(InputError, match=r"unknown method 'stepe'; choose one of step-e, step-e-plus, plain"):
        method_class("stepe")
    with pytest.raises(InputError, match=r"'plain' has no option 'rho_max'; it takes: none"):
        make_method("plain", rho_max=0.1)
    with pytest.raises(InputError, match=r"no option 'a'; it takes: .*keep_start"):
        make_method("self-paced", a=2)
    with pytest.raises(InputError, match=r"no option 'keep_strat'; did you mean keep_start"):
        make_method("self-paced", keep_strat=2)
