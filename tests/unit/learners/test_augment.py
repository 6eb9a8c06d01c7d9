from __future__ import annotations

import numpy as np
import pytest
import torch

from tailwise.learners.training import Channels, crop_and_flip, measure_channels, normalise


def batch(count: int, height: int, width: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(1, 256, (count, height, width, 3), dtype=np.uint8))


def literal_crop(image: np.ndarray, padding: int, top: int, left: int, *, mirrored: bool) -> np.ndarray:
    height, width, _ = image.shape
    padded = np.zeros((height + 2 * padding, width + 2 * padding, 3), np.uint8)
    padded[padding : padding + height, padding : padding + width] = image
    cropped = padded[top : top + height, left : left + width]
    return cropped[:, ::-1] if mirrored else cropped


@pytest.mark.parametrize(("height", "width", "padding"), [(8, 8, 2), (5, 7, 3), (6, 4, 0)])
def test_crops_are_those_of_a_literal_loop_over_images(height: int, width: int, padding: int) -> None:
    images = batch(50, height, width)
    ours = crop_and_flip(images, padding, torch.Generator().manual_seed(7)).numpy()
    draws = torch.Generator().manual_seed(7)
    tops = torch.randint(2 * padding + 1, (50, 1), generator=draws).flatten().tolist()
    lefts = torch.randint(2 * padding + 1, (50, 1), generator=draws).flatten().tolist()
    mirrored = (torch.rand((50, 1), generator=draws) < 0.5).flatten().tolist()
    assert 10 < sum(mirrored) < 40
    for image, crop, top, left, turned in zip(images.numpy(), ours, tops, lefts, mirrored, strict=True):
        assert np.array_equal(crop, literal_crop(image, padding, top, left, mirrored=turned))


def test_every_shift_and_both_sides_come_up_equally_often() -> None:
    marked = torch.zeros((9000, 3, 3, 3), dtype=torch.uint8)
    marked[:, 1, 1] = 1
    marked[:, 1, 2] = 2
    crops = crop_and_flip(marked, 1, torch.Generator().manual_seed(0)).numpy()[..., 0]
    shapes, counts = np.unique(crops.reshape(9000, 9), axis=0, return_counts=True)
    assert len(shapes) == 18  # 3 × 3 shifts, mirrored or not, all of which can be told apart
    assert counts.min() > 400
    assert counts.max() < 600


def test_without_flip_no_image_is_mirrored() -> None:
    images = batch(20, 4, 4)
    assert torch.equal(crop_and_flip(images, 0, torch.Generator().manual_seed(0), flip=False), images)


def test_channels_are_measured_exactly() -> None:
    images = batch(600, 4, 5).numpy()  # more than one chunk
    images[..., 2] = 9
    channels = measure_channels(images)
    np.testing.assert_allclose(channels.mean, images.mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(channels.std, [*images.std(axis=(0, 1, 2))[:2], 1.0], rtol=1e-12)


def test_normalised_images_have_mean_0_and_deviation_1_and_lie_in_channels_last_order() -> None:
    images = batch(30, 6, 5)
    ready = normalise(images, measure_channels(images.numpy()))
    assert ready.shape == (30, 3, 6, 5)
    assert ready.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ready.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(ready.std(dim=(0, 2, 3), correction=0), torch.ones(3))


def test_normalising_is_subtracting_and_dividing_per_channel() -> None:
    images, channels = batch(2, 3, 4), Channels((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
    expected = (images.numpy().astype(np.float64) - [1, 2, 3]) / [4, 5, 6]
    np.testing.assert_allclose(normalise(images, channels).numpy(), expected.transpose(0, 3, 1, 2), rtol=1e-5)
