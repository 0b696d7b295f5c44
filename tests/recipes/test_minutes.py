"""Minutes as a user gives them."""

import pytest

from cct_keras.errors import RecipeError
from cct_keras.recipes.minutes import check_minutes
from cct_keras.recipes.rows import find_recipe


@pytest.mark.parametrize(
    "minutes", [0, -1, float("nan"), float("inf"), 1e18, "2", True]
)
def test_what_is_no_length_of_time(minutes):
    with pytest.raises(RecipeError, match="`minutes` must be above 0") as found:
        check_minutes(minutes)
    assert "\n" not in str(found.value)


def test_minutes_or_epochs():
    assert check_minutes(None, 3) is None
    assert check_minutes(0.5) == 0.5
    with pytest.raises(RecipeError, match="give `minutes` or `epochs`, not both"):
        check_minutes(2, 3)


def test_averaged_weights_reach_back_over_a_share_of_the_run():
    recipe = find_recipe("small", ema=0.99)
    assert find_recipe(recipe, epochs=500).ema == pytest.approx(0.999)
    assert find_recipe(recipe, epochs=5).ema == pytest.approx(0.9)
    assert find_recipe(recipe, epochs=50).ema == 0.99
    assert find_recipe(find_recipe("small", ema=0.5), epochs=5).ema == 0.0
    assert find_recipe("small", epochs=5).ema is None
