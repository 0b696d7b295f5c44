"""What changes training images at random: crops, colors, mixing and erasing."""
