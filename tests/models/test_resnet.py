import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepe import InputError
from stepe.models.resnet import resnet18, resnet34

DEPTHS = {resnet18: (2, 2, 2, 2), resnet34: (3, 4, 6, 3)}
BOTH = pytest.mark.parametrize("make", DEPTHS)
STEMS = pytest.mark.parametrize("stem", ["imagenet", "cifar"])


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def lived_in(model: nn.Module) -> nn.Module:
    """BatchNorm with statistics and affine parameters of its own, so that forgetting any of them shows."""
    draw = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight, module.bias, module.running_mean, module.running_var):
                value.data = 0.5 + torch.rand(value.shape, generator=draw)
    return model


def reference(state: dict[str, Tensor], depths: tuple[int, ...], stem: str, x: Tensor) -> Tensor:
    """The network in eval mode, written out from its state dict alone."""

    def norm(name: str, x: Tensor) -> Tensor:
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        return F.batch_norm(x, mean, var, state[f"{name}.weight"], state[f"{name}.bias"])

    stride, padding = (2, 3) if stem == "imagenet" else (1, 1)
    x = F.relu(norm("bn1", F.conv2d(x, state["conv1.weight"], stride=stride, padding=padding)))
    if stem == "imagenet":
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = F.relu(norm(f"{at}.bn1", F.conv2d(x, state[f"{at}.conv1.weight"], stride=stride, padding=1)))
            y = norm(f"{at}.bn2", F.conv2d(y, state[f"{at}.conv2.weight"], padding=1))
            if f"{at}.downsample.0.weight" in state:
                x = norm(f"{at}.downsample.1", F.conv2d(x, state[f"{at}.downsample.0.weight"], stride=stride))
            x = F.relu(x + y)
    return x.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]


@pytest.mark.parametrize(
    ("make", "classes", "stem", "count"),
    [
        (resnet18, 100, "imagenet", 11_227_812),
        (resnet18, 10, "cifar", 11_173_962),
        (resnet34, 1000, "imagenet", 21_797_672),
    ],
)
def test_the_number_of_parameters_is_the_known_one(make, classes, stem, count):
    assert parameters(make(classes, stem=stem)) == count


@BOTH
@STEMS
def test_outputs_are_those_of_the_network_written_out(make, stem):
    model = lived_in(make(7, stem=stem)).double().eval()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), reference(model.state_dict(), DEPTHS[make], stem, x))


def test_the_cifar_stem_keeps_the_size_and_the_imagenet_stem_quarters_it():
    sizes = {}
    for stem in ("imagenet", "cifar"):
        model = resnet18(10, stem=stem)
        model.layer1.register_forward_hook(lambda *args, stem=stem: sizes.update({stem: args[2].shape[2:]}))
        model(torch.zeros(2, 3, 32, 32))
    assert sizes == {"imagenet": (8, 8), "cifar": (32, 32)}


def test_the_state_dict_has_torchvisions_names_in_its_order():
    bn = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    expected = ["conv1.weight", *(f"bn1.{name}" for name in bn)]
    for stage in range(1, 5):
        for block in range(2):
            for layer in (1, 2):
                at = f"layer{stage}.{block}"
                expected += [f"{at}.conv{layer}.weight", *(f"{at}.bn{layer}.{name}" for name in bn)]
            if stage > 1 and block == 0:
                expected += [f"{at}.downsample.0.weight", *(f"{at}.downsample.1.{name}" for name in bn)]
    assert list(resnet18(10).state_dict()) == [*expected, "fc.weight", "fc.bias"]


def test_weights_are_drawn_as_torchvision_draws_them():
    """Each layer first draws its own default, projections before the block they belong to; then He's normal."""
    torch.manual_seed(5)
    model = resnet18(10)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    shapes = {name: value.shape for name, value in model.state_dict().items() if value.ndim == 4}
    built = sorted(shapes, key=lambda name: (name[:8], "downsample" not in name) if name != "conv1.weight" else ("",))
    for name in built:
        outputs, inputs, size, _ = shapes[name]
        nn.Conv2d(inputs, outputs, size, bias=False)
    fc = nn.Linear(512, 10)
    for name, shape in shapes.items():
        deviation = (2 / (shape[0] * shape[2] * shape[3])) ** 0.5
        assert torch.equal(model.state_dict()[name], torch.empty(shape).normal_(0, deviation)), name
    assert torch.equal(model.fc.weight, fc.weight)
    assert torch.equal(model.fc.bias, fc.bias)
    assert torch.equal(torch.get_rng_state(), after)


@BOTH
def test_torchvisions_weights_load_and_give_equal_outputs(make):
    torchvision = pytest.importorskip("torchvision")
    theirs = lived_in(getattr(torchvision.models, make.__name__)(num_classes=10))
    ours = make(10)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(4, 3, 64, 64)
    for mode in (True, False):
        assert torch.equal(ours.train(mode)(x), theirs.train(mode)(x))


@BOTH
def test_one_seed_gives_torchvisions_initial_weights(make):
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(5)
    ours = make(10).state_dict()
    torch.manual_seed(5)
    theirs = getattr(torchvision.models, make.__name__)(num_classes=10).state_dict()
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name


@STEMS
def test_every_parameter_learns(stem):
    model = resnet18(10, stem=stem)
    F.cross_entropy(model(torch.randn(8, 3, 32, 32)), torch.arange(8)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_nonsense_is_refused_with_what_there_is():
    with pytest.raises(InputError, match=r"'tiny'.*imagenet, cifar"):
        resnet18(10, stem="tiny")
    with pytest.raises(InputError, match="0 classes"):
        resnet34(0)
