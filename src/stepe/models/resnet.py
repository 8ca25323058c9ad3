"""ResNet-18 and ResNet-34 (He et al., 2016) with torchvision's parameter names, initialisation and outputs.

The ImageNet stem halves a picture twice before the first block; on 32 x 32 pictures it leaves 8 x 8, which is fast
and what the paper ran. The CIFAR stem keeps all 32 x 32 and is far more accurate there.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn

from stepe.errors import InputError

Stem = Literal["imagenet", "cifar"]
WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        # The projection is made first and registered last, as in torchvision: construction order is the order of
        # random draws, registration order the order of the state dict.
        downsample = None
        if stride != 1 or inputs != outputs:
            downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the same size, or of half of it."""
        shortcut: Tensor = x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += shortcut
        activated: Tensor = self.relu(out)
        return activated


class ResNet(nn.Module):
    """Four stages of basic blocks, each after the first twice as wide and half as large as the one before."""

    def __init__(self, depths: Sequence[int], classes: int, stem: Stem = "imagenet"):
        super().__init__()
        if stem not in get_args(Stem):
            raise InputError(f"unknown stem {stem!r}; there is {', '.join(get_args(Stem))}")
        if classes < 1:
            raise InputError(f"a ResNet for {classes} classes cannot be made; give at least 1")
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(3, WIDTHS[0], kernel_size=7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, WIDTHS[0], kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], depths[0], stride=1)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], depths[1], stride=2)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], depths[2], stride=2)
        self.layer4 = _stage(WIDTHS[2], WIDTHS[3], depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(WIDTHS[3], classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights of the convolutions; the other layers draw their own."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def resnet18(classes: int, stem: Stem = "imagenet") -> ResNet:
    """Make a ResNet-18: 11,227,812 parameters with the ImageNet stem and 100 classes."""
    return ResNet((2, 2, 2, 2), classes, stem)


def resnet34(classes: int, stem: Stem = "imagenet") -> ResNet:
    """Make a ResNet-34: 21,335,972 parameters with the ImageNet stem and 100 classes."""
    return ResNet((3, 4, 6, 3), classes, stem)


def _stage(inputs: int, outputs: int, depth: int, stride: int) -> nn.Sequential:
    blocks = [BasicBlock(inputs, outputs, stride)]
    blocks += [BasicBlock(outputs, outputs, stride=1) for _ in range(1, depth)]
    return nn.Sequential(*blocks)
